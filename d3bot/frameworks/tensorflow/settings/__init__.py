"""One module per TensorFlow setting family: its options, its contract, what its template needs."""
