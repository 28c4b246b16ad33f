"""The commands of ``tpugraph``, one module each; a module is loaded when its command runs."""
