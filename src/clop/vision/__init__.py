"""Image classification with and without CLOP: data, networks, methods and training."""
