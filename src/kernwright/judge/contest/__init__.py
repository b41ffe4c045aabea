"""Who is judged against whom: contestants, pairs and the lineup of a judgement, and the workers that run them."""
