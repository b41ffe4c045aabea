"""Code that several families of ops share: argument checks, layouts, native libraries and device headers."""
