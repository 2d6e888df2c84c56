"""The parts of scripts/gpu-check, which the GPU kit takes along. They need nothing but Python's standard library; torch_step.py needs torch."""
