"""One engine and one small layer for all tests: its kernels are compiled once."""
import pytest
import w4moe
from reference import Layer, small_problem


@pytest.fixture(scope="session")
def engine():
    return w4moe.Engine("lockstep")


@pytest.fixture(scope="session")
def small(engine):
    layer = Layer(small_problem(bias=True))
    plan = engine.plan(layer.problem)
    engine.build(plan)
    return layer, plan


@pytest.fixture(scope="session")
def moe(engine, small):
    layer, plan = small
    return w4moe.MoE(engine, plan, layer.weights)
