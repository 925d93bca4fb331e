import pandas as pd
rows = pd.concat(map(pd.read_csv, ["yarn.csv", "dynamic.csv"]))
ppl = rows[(rows.measure == "perplexity") & rows.to.isna()].pivot(index="length", columns="scaling", values=["value", "low", "high"])
bars = [[ppl.value[c] - ppl.low[c], ppl.high[c] - ppl.value[c]] for c in ppl.value]
ppl.value.plot(yerr=bars).figure.savefig("perplexity.png")
