"""`chatserver plan`: capacity and cost estimate for a number of users.

`plan_formulas` contains the formulas, and `formula_evaluation` evaluates them. `plan` defines the
inputs and computes a plan, `report` builds the result, and `cli` prints it. `constants.json` has
the measured constants. Start with `plan_formulas`.
"""
