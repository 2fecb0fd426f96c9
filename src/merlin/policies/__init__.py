"""What acts: the protocol, and policies on vectors and images."""
