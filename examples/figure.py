# /// script
# dependencies = ["matplotlib", "pandas"]
# ///
"""Draws the sales of a table as a figure, with packages that need not be installed on this machine.

    palisade run python --output-dir out examples/figure.py

The packages are named above (PEP 723). An agent does the same in two calls: `install_packages`, then `run`.
"""

import matplotlib.pyplot as plt
import pandas as pd

table = pd.DataFrame({"month": ["January", "February", "March"], "sales": [3, 5, 4]})
table.plot.bar(x="month", y="sales", rot=0)
plt.show()
print(table.sales.sum())
