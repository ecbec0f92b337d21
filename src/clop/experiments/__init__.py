"""What a run leaves behind, and the paper's experiments."""
