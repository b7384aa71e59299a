"""`chatserver plan`: capacity and cost estimate for a number of users.

`model` contains the formulas and `formulas` evaluates them; `inputs` defines the options, `report`
builds the result, and `cli` prints it. `constants.json` has the measured constants. Start with
`model`.
"""
