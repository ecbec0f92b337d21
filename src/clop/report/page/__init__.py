"""A page that people open: results, videos and the layer itself, in one folder, without a server."""
