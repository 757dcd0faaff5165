"""What was measured in a photo, to a region and a verdict.

What is measured takes part in the region by `region.extract_borders` (along borders) and `sides`
(of the two sides), and in the score by `verdict.photo_features` and `verdict.cut_features`.
`cpcapp.splicing.train.calibrate` learns how much each of them counts.
"""
