"""Open Bandit Pipeline's synthetic slates and its estimates of them, in a process of its own.

As a program, `python open_bandit_slates.py OUT.npz FACTORIZABLE` writes the arrays of a log, and prints the estimates
as JSON. It runs in a Python that can import obp, which DRSTREAM_BENCH_OBP names.
"""

import json
import sys
import warnings


def main():
    import numpy as np

    warnings.simplefilter("ignore")
    from obp import dataset, ope

    path, factorizable = sys.argv[1], sys.argv[2] == "yes"
    rounds, items, length = 150, 5, 3
    slates = dataset.SyntheticSlateBanditDataset(
        n_unique_action=items,
        len_list=length,
        dim_context=2,
        reward_type="binary",
        reward_structure="cascade_additive",
        click_model=None,
        behavior_policy_function=dataset.linear_behavior_policy_logit,
        base_reward_function=dataset.logistic_reward_function,
        is_factorizable=factorizable,
        random_state=5,
    )
    feedback = slates.obtain_batch_bandit_feedback(n_rounds=rounds, return_pscore_item_position=True)
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(rounds, items))
    action = feedback["action"]
    found = slates.obtain_pscore_given_evaluation_policy_logit(action, logits, return_pscore_item_position=True)
    new = dict(zip(("pscore", "pscore_item_position", "pscore_cascade"), found))  # noqa: B905  # old Python
    chances = slates.calc_evaluation_policy_action_dist(action=action, evaluation_policy_logit_=logits)
    q_hat = rng.uniform(size=rounds * length * items)
    common = {"slate_id": feedback["slate_id"], "reward": feedback["reward"], "position": feedback["position"]}
    plain = {"ips": ope.SlateStandardIPS, "iips": ope.SlateIndependentIPS, "rips": ope.SlateRewardInteractionIPS}
    plain |= {"snips": ope.SelfNormalizedSlateStandardIPS, "sniips": ope.SelfNormalizedSlateIndependentIPS}
    plain |= {"snrips": ope.SelfNormalizedSlateRewardInteractionIPS}
    arguments = {f"evaluation_policy_{name}": values for name, values in new.items()}
    arguments |= {name: feedback[name] for name in new}
    values = {
        name: estimator(len_list=length).estimate_policy_value(**common, **arguments)
        for name, estimator in plain.items()
    }
    robust = ope.SlateCascadeDoublyRobust(len_list=length, n_unique_action=items)
    values["cascade-dr"] = robust.estimate_policy_value(
        **common, **arguments, action=action, q_hat=q_hat, evaluation_policy_action_dist=chances
    )
    q = q_hat.reshape(-1, length, items)
    shown = q.reshape(-1, items)[np.arange(len(action)), action].reshape(-1, length)
    expected = (q * chances.reshape(q.shape)).sum(axis=2)
    arrays = {name: feedback[name] for name in ("action", "reward", *new)}
    arrays |= {f"new_{name}": values for name, values in new.items()} | {"q": shown, "q_new": expected}
    np.savez(path, **{name: np.reshape(values, (-1, length)) for name, values in arrays.items()})
    print(json.dumps({name: float(value) for name, value in values.items()}))  # noqa: T201


if __name__ == "__main__":
    main()
