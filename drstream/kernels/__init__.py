"""Every compiled function of drstream, and nothing else. Kernels import nothing of drstream but kernels."""
