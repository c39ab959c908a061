ALPHA = 0.05  # the family-wise error rate of verdicts, unless a setting says otherwise
