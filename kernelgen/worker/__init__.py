"""What runs in the project's Python, where torch is: started by `kernelgen.lab`, never imported by it."""
