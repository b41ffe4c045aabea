"""Python packages as files: pins, wheels, downloads, unpacked trees and the store that keeps them.

Shared by `baselines`, which runs published packages, and by `bundle`, which carries packages to another machine.
"""
