"""One RMS norm and two modulations of LTX-2. See --help."""

from family import benchmark

if __name__ == "__main__":
    benchmark("ltx2_dual_modulate", "compile")
