use super::*;
use crate::guard::State;

fn id(number: u64) -> LeaseId {
    LeaseId::from(tenure_core::Token::from_u64(number))
}

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

/// A schedule with one lease of 30 s that was sent at zero: beats every 10 s, trusted until 28.5 s.
fn one() -> (Schedule, Arc<Pulse>) {
    let mut schedule = Schedule::default();
    let pulse = keep(&mut schedule, 1, 30_000, 0);
    (schedule, pulse)
}

fn keep(schedule: &mut Schedule, number: u64, ttl_ms: u64, sent_ms: u64) -> Arc<Pulse> {
    let beat = Beat::new(ttl(ttl_ms));
    let pulse = Arc::new(Pulse::new(id(number), at(sent_ms).plus(beat.trusted_for())));
    schedule.keep(Arc::clone(&pulse), beat, at(sent_ms));
    pulse
}

fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms_native(ms).unwrap()
}

/// The one request that is sent now.
fn sent(schedule: &mut Schedule, ms: u64) -> Batch {
    let mut batches = schedule.take_due(at(ms));
    assert_eq!(batches.len(), 1, "at {ms}");
    batches.remove(0)
}

fn due(schedule: &mut Schedule, ms: u64) -> Vec<Vec<LeaseId>> {
    schedule.take_due(at(ms)).into_iter().map(|batch| batch.ids).collect()
}

#[test]
fn a_lease_is_renewed_at_a_third_of_its_ttl_and_not_before() {
    let (mut schedule, pulse) = one();
    assert_eq!(schedule.next(), Some(at(10_000)));
    assert!(due(&mut schedule, 9_999).is_empty());
    assert_eq!(due(&mut schedule, 10_000), [[id(1)]]);
    assert!(due(&mut schedule, 10_001).is_empty(), "it is in flight");
    schedule.answered(at(10_050), at(10_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!(schedule.next(), Some(at(20_000)));
    assert_eq!((pulse.trusted_until(), pulse.state(at(10_050))), (at(38_500), State::Held));
}

#[test]
fn a_slow_answer_does_not_lengthen_trust() {
    let (mut schedule, pulse) = one();
    due(&mut schedule, 10_000);
    schedule.answered(at(19_000), at(10_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!(pulse.trusted_until(), at(38_500));
}

#[test]
fn an_unanswered_renewal_is_tried_again_sooner_than_a_beat_and_puts_the_lease_at_risk() {
    let (mut schedule, pulse) = one();
    let batch = sent(&mut schedule, 10_000);
    schedule.unanswered(at(10_010), &batch, None, 0.5);
    assert_eq!(pulse.state(at(10_010)), State::AtRisk);
    assert_eq!(schedule.next(), Some(at(10_635)), "a sixteenth of the interval");
    due(&mut schedule, 10_635);
    schedule.answered(at(10_640), at(10_635), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!(pulse.state(at(10_640)), State::Held);
}

#[test]
fn retries_spread_by_jitter_and_are_never_too_far_apart_for_the_lease() {
    for ttl_ms in [100, 1_000, 30_000, 3_600_000] {
        let mut schedule = Schedule::default();
        keep(&mut schedule, 1, ttl_ms, 0);
        let mut now = ttl_ms / 3 + 1;
        let mut tries = 0_u32;
        // Until trust ends and nothing is on the agenda any more.
        while let [batch] = schedule.take_due(at(now)).as_slice() {
            let asked = (tries == 3).then_some(Duration::from_secs(3_600));
            schedule.unanswered(at(now), batch, asked, f64::from(tries % 10) / 10.0);
            let Some(next) = schedule.next().map(Moment::as_millis) else { break };
            assert!(next - now <= (ttl_ms / 4).clamp(8, 3_000), "{ttl_ms}: {} after {tries}", next - now);
            now = next + 1;
            tries += 1;
        }
        assert!(tries >= 3, "{ttl_ms}: {tries} retries");
    }
}

#[test]
fn trust_ends_on_the_clock_alone_whatever_is_in_flight() {
    let (mut schedule, pulse) = one();
    for second in [10, 13, 16, 19, 22, 25, 28] {
        sent(&mut schedule, second * 1_000);
    }
    assert_eq!(schedule.next(), Some(at(28_500)));
    assert_eq!(pulse.state(at(28_500)), State::Lost, "the clock says so before the heartbeat has noticed");
    schedule.lapse(at(28_500));
    assert_eq!(pulse.loss(), Some(&Loss::OutOfTouch));
    assert_eq!(schedule.next(), None);
}

#[test]
fn a_renewal_accepted_after_the_end_of_trust_revives_nothing() {
    let (mut schedule, pulse) = one();
    due(&mut schedule, 10_000);
    // The process slept: the answer is read before anything else had a chance to run.
    schedule.answered(at(60_000), at(10_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!((pulse.loss(), pulse.state(at(60_000))), (Some(&Loss::OutOfTouch), State::Lost));
    schedule.answered(at(60_001), at(60_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!(pulse.state(at(60_001)), State::Lost);
}

#[test]
fn what_the_server_says_is_over_is_over_at_once() {
    let (mut schedule, pulse) = one();
    due(&mut schedule, 10_000);
    schedule.answered(at(10_001), at(10_000), id(1), Answer::Lost(Loss::Disowned));
    assert_eq!((pulse.loss(), pulse.state(at(10_001))), (Some(&Loss::Disowned), State::Lost));
    assert!(schedule.next().is_none());
}

#[test]
fn a_thousand_leases_taken_one_after_the_other_soon_travel_in_one_request() {
    let mut schedule = Schedule::default();
    for number in 0..1_000 {
        keep(&mut schedule, number, 30_000, number * 2);
    }
    let batches = due(&mut schedule, 10_000);
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].len(), 1_000, "the last was sent 2 s after the first");
    for number in 0..1_000 {
        schedule.answered(at(10_005), at(10_000), id(number), Answer::Renewed(ttl(30_000)));
    }
    assert!(due(&mut schedule, 19_999).is_empty());
    assert_eq!(due(&mut schedule, 20_000)[0].len(), 1_000);
}

#[test]
fn leases_that_were_taken_at_any_time_are_renewed_by_one_request_per_beat() {
    let mut schedule = Schedule::default();
    // One every 70 ms, for seven intervals; the first are renewed long before the last is there.
    let mut taken = 0;
    let mut requests: Vec<(u64, usize)> = Vec::new();
    for now in 0..140_000 {
        if now % 70 == 0 && taken < 1_000 {
            keep(&mut schedule, taken, 30_000, now);
            taken += 1;
        }
        for ids in due(&mut schedule, now) {
            requests.push((now, ids.len()));
            ids.iter().for_each(|id| schedule.answered(at(now), at(now), *id, Answer::Renewed(ttl(30_000))));
        }
    }
    let settled: Vec<_> = requests.iter().filter(|(now, _)| *now > 90_000).collect();
    assert!(settled.iter().all(|(_, size)| *size == 1_000), "{settled:?}");
    assert_eq!(settled.len(), 5, "one in ten seconds: {settled:?}");
    assert!(requests.len() <= 7 * 2 + 6, "and not many more before: {requests:?}");
}

#[test]
fn a_beat_is_never_later_than_an_interval_after_the_last_accepted_request() {
    for sent_ms in (0..40_000).step_by(7) {
        let mut schedule = Schedule::default();
        let first = keep(&mut schedule, 1, 30_000, 5);
        schedule.forget(&first);
        keep(&mut schedule, 2, 30_000, sent_ms);
        let after = schedule.next().unwrap().as_millis() - sent_ms;
        assert!((2_500..=10_000).contains(&after), "{after} ms after {sent_ms}");
    }
}

#[test]
fn a_beat_is_brought_forward_by_a_quarter_of_its_interval_at_most() {
    let (mut schedule, _) = one();
    // Due at 13 s and at 14 s.
    keep(&mut schedule, 2, 39_000, 0);
    keep(&mut schedule, 3, 42_000, 0);
    assert_eq!(due(&mut schedule, 10_000), [[id(1), id(2)]]);
}

#[test]
fn more_leases_than_a_request_may_carry_take_several() {
    let mut schedule = Schedule::default();
    let count = RENEWALS_PER_REQUEST_MAX as u64 + 1;
    (0..count).for_each(|number| drop(keep(&mut schedule, number, 30_000, 0)));
    let sizes: Vec<usize> = due(&mut schedule, 10_000).iter().map(Vec::len).collect();
    assert_eq!(sizes, [RENEWALS_PER_REQUEST_MAX, 1]);
}

#[test]
fn a_request_gets_the_interval_of_its_shortest_lease_to_be_answered() {
    let (mut schedule, _) = one();
    keep(&mut schedule, 2, 6_000, 8_000);
    assert_eq!(schedule.take_due(at(10_000))[0].timeout, Duration::from_secs(2));
    let mut long = Schedule::default();
    keep(&mut long, 3, 3_600_000, 0);
    assert_eq!(long.take_due(at(1_200_000))[0].timeout, TIMEOUT_MAX);
}

#[test]
fn a_forgotten_lease_is_not_renewed_and_not_lost() {
    let (mut schedule, pulse) = one();
    due(&mut schedule, 10_000);
    schedule.forget(&pulse);
    schedule.answered(at(10_001), at(10_000), id(1), Answer::Lost(Loss::Disowned));
    schedule.lapse(at(60_000));
    assert_eq!((schedule.next(), pulse.loss()), (None, None));
}

#[test]
fn when_nobody_beats_any_more_every_guard_is_told() {
    let (schedule, pulse) = one();
    drop(schedule);
    assert_eq!(pulse.loss(), Some(&Loss::HeartbeatStopped));
}

/// Two guards of one lease of 30 s, the second taken 2 s after the first.
fn two() -> (Schedule, Arc<Pulse>, Arc<Pulse>) {
    let (mut schedule, first) = one();
    let second = keep(&mut schedule, 1, 30_000, 2_000);
    (schedule, first, second)
}

#[test]
fn every_guard_of_a_lease_is_renewed_by_one_beat_and_hears_of_its_loss() {
    let (mut schedule, first, second) = two();
    let batch = sent(&mut schedule, 10_000);
    schedule.unanswered(at(10_010), &batch, None, 0.5);
    assert_eq!([&first, &second].map(|pulse| pulse.state(at(10_010))), [State::AtRisk; 2]);
    schedule.answered(at(11_001), at(11_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!([&first, &second].map(|pulse| pulse.trusted_until()), [at(39_500); 2]);
    schedule.lapse(at(39_500));
    assert_eq!([&first, &second].map(|pulse| pulse.loss()), [Some(&Loss::OutOfTouch); 2]);
    assert_eq!((schedule.take_lost().len(), schedule.next()), (2, None));
}

#[test]
fn a_second_guard_leaves_nothing_of_the_first_on_the_agenda() {
    let (mut schedule, first) = one();
    // Too late to be due with the first at 10 s.
    let second = keep(&mut schedule, 1, 30_000, 9_000);
    assert_eq!(schedule.next(), Some(at(19_000)));
    schedule.forget(&first);
    schedule.forget(&second);
    assert_eq!(schedule.next(), None);
}

#[test]
fn a_guard_that_is_dropped_takes_no_heartbeat_from_the_other() {
    let (mut schedule, first, second) = two();
    schedule.forget(&second);
    assert_eq!(due(&mut schedule, 10_000), [[id(1)]]);
    schedule.lapse(at(60_000));
    assert_eq!((first.loss(), second.loss()), (Some(&Loss::OutOfTouch), None));
}

#[test]
fn a_guard_that_releases_the_lease_tells_the_others() {
    let (mut schedule, first, second) = two();
    schedule.release(&second);
    assert_eq!((first.loss(), second.loss()), (Some(&Loss::Released), None));
    assert_eq!((schedule.take_lost().len(), schedule.next()), (1, None));
}

#[test]
fn the_release_of_a_guard_that_was_lost_before_is_told_to_one_that_was_taken_since() {
    let (mut schedule, first) = one();
    schedule.lapse(at(28_500));
    let second = keep(&mut schedule, 1, 30_000, 28_600);
    schedule.release(&first);
    assert_eq!((first.loss(), second.loss()), (Some(&Loss::OutOfTouch), Some(&Loss::Released)));
}

#[test]
fn a_renewal_that_hangs_is_sent_again_and_the_first_answer_counts() {
    let (mut schedule, pulse) = one();
    let hung = sent(&mut schedule, 10_000);
    assert_eq!((schedule.next(), pulse.state(at(12_499))), (Some(at(12_500)), State::Held));
    let again = sent(&mut schedule, 12_500);
    assert_eq!((again.ids.clone(), pulse.state(at(12_500))), (vec![id(1)], State::AtRisk));
    schedule.answered(at(12_510), at(12_500), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!((pulse.trusted_until(), pulse.state(at(12_510))), (at(41_000), State::Held));
    let next = schedule.next();
    schedule.unanswered(at(20_000), &hung, None, 0.5);
    assert_eq!((schedule.next(), pulse.state(at(20_000))), (next, State::Held), "nobody waits for the first any more");
}

#[test]
fn while_the_second_request_is_on_its_way_the_failure_of_the_first_says_nothing_and_its_answer_counts() {
    let (mut schedule, pulse) = one();
    let first = sent(&mut schedule, 10_000);
    sent(&mut schedule, 12_500);
    schedule.unanswered(at(12_600), &first, None, 0.5);
    assert_eq!(schedule.next(), Some(at(15_000)));
    schedule.answered(at(12_700), at(10_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!((pulse.trusted_until(), pulse.state(at(12_700))), (at(38_500), State::Held));
}

#[test]
fn an_answer_that_was_overtaken_can_only_shorten_trust() {
    for (late_ttl, trusted_until) in [(30_000, 41_000), (60_000, 41_000), (20_000, 31_500)] {
        let (mut schedule, pulse) = one();
        sent(&mut schedule, 10_000);
        sent(&mut schedule, 12_500);
        schedule.answered(at(12_510), at(12_500), id(1), Answer::Renewed(ttl(30_000)));
        schedule.answered(at(12_600), at(10_000), id(1), Answer::Renewed(ttl(late_ttl)));
        assert_eq!(pulse.trusted_until(), at(trusted_until), "{late_ttl}");
    }
}

#[test]
fn a_lease_within_another_is_lost_with_it_however_that_ends() {
    let family = || {
        let mut schedule = Schedule::default();
        let parent = keep(&mut schedule, 1, 30_000, 0);
        let beat = Beat::new(ttl(300_000));
        let child = |number, of| Arc::new(Pulse::new(id(number), at(0).plus(beat.trusted_for())).within(Some(id(of))));
        let family = [child(2, 1), child(3, 2), child(4, 99)];
        family.iter().for_each(|pulse| schedule.keep(Arc::clone(pulse), beat, at(0)));
        (schedule, parent, family)
    };
    let ends: [fn(&mut Schedule, &Arc<Pulse>); 4] = [
        |schedule, _| schedule.lapse(at(28_500)),
        |schedule, parent| schedule.release(parent),
        |schedule, parent| schedule.forget(parent),
        |schedule, _| schedule.answered(at(1), at(0), id(1), Answer::Lost(Loss::OutOfTouch)),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let (mut schedule, parent, [child, grandchild, other]) = family();
        schedule.lapse(at(28_499));
        assert_eq!([&child, &grandchild].map(|pulse| pulse.state(at(0))), [State::Held, State::Held], "{number}");
        end(&mut schedule, &parent);
        assert_eq!([&child, &grandchild].map(|pulse| pulse.state(at(0))), [State::Lost, State::Lost], "{number}");
        assert_eq!(other.state(at(0)), State::Held, "{number}: it lives within one that is kept elsewhere");
        assert!(schedule.take_lost().len() >= 2, "{number}: they are still to be told");
    }
}

#[test]
fn from_the_moment_a_shorter_ttl_is_asked_for_no_more_is_trusted_than_it_gives() {
    let (mut schedule, pulse) = one();
    schedule.asked(at(4_000), id(1), ttl(6_000));
    assert_eq!((pulse.trusted_until(), pulse.state(at(4_000))), (at(9_700), State::Held));
    assert_eq!(schedule.next(), Some(at(6_000)), "and it is renewed at that pace");
    // Sent after it, and decided before it, for all that is known.
    sent(&mut schedule, 6_000);
    schedule.answered(at(6_010), at(6_000), id(1), Answer::Renewed(ttl(30_000)));
    assert_eq!((pulse.trusted_until(), schedule.next()), (at(11_700), Some(at(8_000))));
    schedule.lapse(at(11_700));
    assert_eq!(pulse.loss(), Some(&Loss::OutOfTouch));
}

#[test]
fn a_beat_that_is_sent_after_a_renewal_was_given_up_says_which_ttl_holds() {
    for (holds, trusted_until) in [(30_000, 39_500), (6_000, 16_700)] {
        let (mut schedule, pulse) = one();
        schedule.asked(at(9_000), id(1), ttl(6_000));
        sent(&mut schedule, 10_500);
        schedule.settled(id(1), Some(at(10_600)));
        schedule.answered(at(10_700), at(10_500), id(1), Answer::Renewed(ttl(30_000)));
        assert_eq!(pulse.trusted_until(), at(16_200), "that one was sent before");
        schedule.answered(at(11_010), at(11_000), id(1), Answer::Renewed(ttl(holds)));
        assert_eq!(pulse.trusted_until(), at(trusted_until), "{holds}");
    }
}

#[test]
fn a_longer_ttl_is_trusted_when_it_is_answered_and_not_before() {
    let (mut schedule, pulse) = one();
    schedule.asked(at(4_000), id(1), ttl(60_000));
    assert_eq!((pulse.trusted_until(), schedule.next()), (at(28_500), Some(at(10_000))));
    schedule.answered(at(4_010), at(4_000), id(1), Answer::Renewed(ttl(60_000)));
    schedule.settled(id(1), None);
    assert_eq!(pulse.trusted_until(), at(61_000));
}

#[test]
fn of_several_ttls_that_are_asked_for_the_shortest_counts_until_the_last_is_settled() {
    let (mut schedule, pulse) = one();
    schedule.asked(at(1_000), id(1), ttl(20_000));
    schedule.asked(at(2_000), id(1), ttl(6_000));
    assert_eq!(pulse.trusted_until(), at(7_700));
    schedule.answered(at(2_010), at(1_000), id(1), Answer::Renewed(ttl(20_000)));
    schedule.settled(id(1), None);
    assert_eq!(pulse.trusted_until(), at(7_700), "the other is still on its way");
    schedule.settled(id(1), Some(at(3_000)));
    schedule.answered(at(3_010), at(3_000), id(1), Answer::Renewed(ttl(20_000)));
    assert_eq!(pulse.trusted_until(), at(22_000));
}

#[test]
fn many_leases_that_are_lost_together_are_lost_at_once() {
    let mut schedule = Schedule::default();
    (0..50_000).for_each(|number| drop(keep(&mut schedule, number, 30_000, 0)));
    let start = std::time::Instant::now();
    schedule.lapse(at(28_500));
    assert_eq!(schedule.take_lost().len(), 50_000);
    // A look at all the others for each of them would take more than a minute here.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
