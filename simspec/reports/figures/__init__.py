"""One figure a file: a view of a sweep in, a :class:`simspec.reports.spec.FigureSpec` out."""
