"""`chatserver plan`: capacity and cost estimate for a number of users.

`plan_formulas` contains the formulas, and `formula_evaluation` evaluates them. `plan_inputs`
defines the inputs, `plan` computes the plan with its warnings, and `cli` prints it.
`constants.json` has the measured constants. Start with `plan_formulas`.
"""
