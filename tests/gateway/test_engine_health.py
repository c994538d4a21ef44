"""Ejection and return, by a clock of the test's own."""

from gateway.engines.health import FAILURES_IN_A_ROW, EngineHealth


def test_two_broken_answers_do_not_eject_and_the_third_does() -> None:
    health = EngineHealth()
    begun = health.begin(0.0)
    for failures in range(1, FAILURES_IN_A_ROW):
        assert not health.failed(begun, 0.0, to_connect=False)
        assert health.failures == failures
    assert health.failed(begun, 0.0, to_connect=False)
    assert health.ejected
    assert health.returns_at == 1.0


def test_one_good_end_in_between_starts_the_count_anew() -> None:
    health = EngineHealth()
    begun = health.begin(0.0)
    for _ in range(20):
        health.failed(begun, 0.0, to_connect=False)
        health.failed(begun, 0.0, to_connect=False)
        health.ended_well(begun)
    assert not health.ejected
    assert health.ejections == 0


def test_the_head_of_an_answer_does_not_start_the_count_anew() -> None:
    health = EngineHealth()
    for _ in range(FAILURES_IN_A_ROW):
        begun = health.begin(0.0)
        health.answered(begun)
        health.failed(begun, 0.0, to_connect=False)
    assert health.ejected


def test_a_failure_to_connect_ejects_at_once_and_ever_longer() -> None:
    health, now = EngineHealth(), 0.0
    lengths = []
    for _ in range(7):
        assert health.failed(health.begin(now), now, to_connect=True)
        lengths.append(health.returns_at - now)
        now = health.returns_at
    assert lengths == [1, 2, 4, 8, 16, 30, 30]
    assert health.ejections == 7
    health.ended_well(health.begin(now))
    assert not health.ejected
    health.failed(health.begin(now), now, to_connect=True)
    assert health.returns_at - now == 1


def test_requests_that_die_together_count_once() -> None:
    health = EngineHealth()
    begun = [health.begin(0.0) for _ in range(50)]
    for one in begun:
        health.failed(one, 0.0, to_connect=True)
    assert (health.ejections, health.returns_at) == (1, 1.0)


def test_what_began_before_an_ejection_does_not_end_it() -> None:
    health = EngineHealth()
    old = health.begin(0.0)
    health.failed(health.begin(0.0), 0.0, to_connect=True)
    health.answered(old)
    health.ended_well(old)
    assert health.ejected


def test_one_trial_at_a_time() -> None:
    health = EngineHealth()
    health.failed(health.begin(0.0), 0.0, to_connect=True)
    assert health.returns_at == 1.0
    trial = health.begin(1.5)
    assert health.returns_at == 2.5
    health.answered(trial)
    assert not health.ejected


def test_an_engine_back_on_trial_is_ejected_for_its_next_failure() -> None:
    health = EngineHealth()
    for _ in range(FAILURES_IN_A_ROW):
        health.failed(health.begin(0.0), 0.0, to_connect=False)
    health.answered(health.begin(1.0))
    assert not health.ejected
    assert health.failed(health.begin(1.0), 1.0, to_connect=False)
    assert health.returns_at == 3.0


def test_a_health_check_is_believed_until_it_proves_wrong() -> None:
    assert not EngineHealth().wants_check
    health = EngineHealth()
    health.checked()
    health.failed(health.begin(0.0), 0.0, to_connect=True)
    assert health.wants_check
    health.checked()
    assert health.returns_at < 0.0
    health.failed(health.begin(0.5), 0.5, to_connect=True)
    health.checked()
    assert health.returns_at == 2.5
    health.ended_well(health.begin(3.0))
    health.failed(health.begin(3.0), 3.0, to_connect=True)
    assert health.wants_check
