"""tf_keras, the Keras before 3: what of a script is written otherwise for it."""

_WRITTEN = (
    (
        "import keras\nimport numpy as np\nimport tensorflow as tf\n",
        "import numpy as np\nimport tensorflow as tf\nimport tf_keras as keras\n",
    ),
    ("keras.config.set_floatx(", "keras.backend.set_floatx("),
    ("keras.config.set_dtype_policy(", "keras.mixed_precision.set_global_policy("),
    ("keras.ops.gelu(", "tf.nn.gelu("),
    ("keras.ops.relu(", "tf.nn.relu("),
    ("keras.ops.tanh(", "tf.tanh("),
    ("keras.ops.sigmoid(", "tf.sigmoid("),
    ("keras.ops.concatenate(", "tf.concat("),
    ("keras.ops.mean(", "tf.reduce_mean("),
    ("[v.value for v in weights]", "weights"),
    ("(v.value)", "(v)"),
    ("v.path", "v.name"),
)
"""(in Keras 3, in tf_keras): its variables are `tf.Variable`s, and functions of TensorFlow stand between its layers."""


def in_tf_keras(text: str) -> str:
    """Return a script, or a part of one, that is written for Keras 3 as it is written for tf_keras."""
    for new, old in _WRITTEN:
        text = text.replace(new, old)
    return text
