"""The parts that all HTML pages share."""
