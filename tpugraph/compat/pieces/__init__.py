"""What TensorFlow 1.15 had and neither TensorFlow 2.21 nor a library has: written anew, with the same arguments."""
