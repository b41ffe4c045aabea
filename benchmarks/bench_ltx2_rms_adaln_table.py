"""RMS norm and modulation of LTX-2, from a table and a timestep embedding. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("ltx2_rms_adaln_table", "compile")
