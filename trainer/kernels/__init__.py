"""CUDA kernels, one .cu an operator, and the launches they need. Nothing here touches a device."""
