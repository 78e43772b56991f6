"""Instances with sparse support against simulations that are written from their descriptions."""

import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import make, occupancy_of, value_of

EPISODES = 4000


def exact(cmdp, policy, budgets):
    """The expected reward and costs of an episode; `policy` is flat, `[horizon, N, A]`."""
    q = occupancy_of(cmdp.mdp, cmdp.mdp.policy_from_flat(policy))
    costs = value_of(cmdp.constraints.mean(), q, cmdp.layers) + jnp.asarray(budgets)
    return [float(value_of(cmdp.rewards.mean(), q, cmdp.layers)), *map(float, costs)]


def agree(found, expected):
    # 5 standard errors: a right instance fails once in 10^6.
    error = 5 * found.std(0) / np.sqrt(len(found))
    np.testing.assert_array_less(np.abs(found.mean(0) - expected), error)


def test_customers_queue_as_described():
    buffers, service, arrival, onward, horizon = (2, 1, 2), (0.25, 0.15, 0.2), 0.35, 0.8, 9
    cmdp = make(
        "queueing",
        buffers=buffers,
        service=service,
        arrival=arrival,
        onward=onward,
        horizon=horizon,
        support="known",
    )
    rng = np.random.default_rng(0)
    shape = tuple(places + 1 for places in buffers)
    # Most enter at the first station, so that it matters where they go on to.
    policy = rng.dirichlet([1, 9, 1, 1], size=(horizon, int(np.prod(shape))))
    found, last = np.zeros((EPISODES, 3)), np.zeros(len(policy[0]))
    for episode in range(EPISODES):
        queues = [0, 0, 0]
        for step in range(horizon):
            state = int(np.ravel_multi_index(queues, shape))
            goes_to = int(rng.choice(4, p=policy[step, state]))
            found[episode, 1] += sum(queues) / sum(buffers)
            event = rng.choice(5, p=[arrival, *service, 1 - arrival - sum(service)])
            if event == 0:
                if goes_to and queues[goes_to - 1] < buffers[goes_to - 1]:
                    queues[goes_to - 1] += 1
                else:
                    found[episode, 2] += 1
            elif event < 4 and queues[event - 1]:
                here, there = event - 1, event % 3
                if rng.random() >= onward:
                    queues[here] -= 1
                    found[episode, 0] += 1
                elif queues[there] < buffers[there]:
                    queues[here] -= 1
                    queues[there] += 1
        last[state] += 1 / EPISODES
    # Where customers wait in the last step: sums alone do not tell one station from another.
    q = occupancy_of(cmdp.mdp, cmdp.mdp.policy_from_flat(policy))
    there = np.asarray(cmdp.mdp.to_flat(cmdp.layers.to_pairs(q)))[-1].sum(-1)
    error = 5 * np.sqrt(there * (1 - there) / EPISODES) + 3 / EPISODES
    np.testing.assert_array_less(np.abs(last - there), error)
    agree(found, exact(cmdp, policy, (1.2, 0.6)))


@pytest.mark.parametrize("lead_time", [1, 3])
def test_orders_arrive_as_described(lead_time):
    capacity, most, horizon = 5, 2, 7
    cmdp = make(
        "inventory-lead-time",
        capacity=capacity,
        lead_time=lead_time,
        most_ordered=most,
        horizon=horizon,
        support="known",
    )
    rng = np.random.default_rng(0)
    shape = (capacity + 1, *[most + 1] * lead_time)
    policy = rng.dirichlet(np.ones(most + 1), size=(horizon, int(np.prod(shape))))
    found = np.zeros((EPISODES, 3))
    for episode in range(EPISODES):
        stock, under_way = capacity // 2, [0] * lead_time
        for step in range(horizon):
            state = int(np.ravel_multi_index((stock, *under_way), shape))
            order = int(rng.choice(most + 1, p=policy[step, state]))
            under_way.append(order)
            stock = min(stock + under_way.pop(0), capacity)
            demand = int(rng.choice(4, p=[0.2, 0.4, 0.3, 0.1]))
            sold = min(stock, demand)
            stock -= sold
            found[episode] += sold / 3, stock / capacity, order > 0
    agree(found, exact(cmdp, policy, (0.8, 2.5)))


@pytest.mark.parametrize("name", ["queueing", "inventory-lead-time", "grid"])
def test_few_states_can_follow(name):
    known, unknown = make(name, support="known"), make(name)
    few = int(known.layers.num_triples)
    assert few < int(unknown.layers.num_triples) / 2
    assert few == (np.asarray(unknown.mdp.transition) > 0).sum()
    np.testing.assert_allclose(known.layers.to_dense(known.mdp.transition), unknown.mdp.transition)
