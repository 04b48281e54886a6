"""Names that an input or a layer may not have, because they mean something else in a rendered script."""

import keyword

_SCRIPT = """
array bags batch build data dist distributed fit generator grads jagged keras loss loss_of losses losses_of main model
mp named nn np optimizer os pooled print rank reference rng sample seen self skipped step store strategy sys target
tempfile tf torch trial update values variables world zip
"""
_MODULE = """
add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval extra_repr float
forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers
named_children named_modules named_parameters parameters register_backward_hook register_buffer register_forward_hook
register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad
"""

RESERVED = frozenset(_SCRIPT.split()) | frozenset(_MODULE.split()) | frozenset(keyword.kwlist)
"""Python's keywords, the words of the scripts themselves, and the attributes of `torch.nn.Module` (2.13): a layer
becomes a variable and an attribute of the model."""
