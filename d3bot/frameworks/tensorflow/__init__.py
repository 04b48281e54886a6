"""TensorFlow and Keras: layers, setting families, and how a trial is written."""
