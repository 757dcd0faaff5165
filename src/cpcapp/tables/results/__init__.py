"""Write what was found: scores, loadings, top features, model, summary and plot."""
