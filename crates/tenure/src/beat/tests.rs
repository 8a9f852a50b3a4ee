//! The heartbeat with a scripted server and paused time: hours pass in milliseconds, nothing sleeps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tenure_core::heartbeat::Beat;
use tenure_core::{Token, Ttl};

use super::clock::PausedClock;
use super::pulse::Pulse;
use super::*;
use crate::guard::{Loss, State};

/// What the server does with the next request.
enum Reply {
    Renew,
    Lose,
    Fail,
    /// Answers after this long, or not at all if the request is given up before.
    Late(Duration),
}

/// A server that answers by script; a request beyond the script fails the test.
#[derive(Default)]
struct Script {
    replies: RefCell<VecDeque<Reply>>,
    sizes: RefCell<Vec<usize>>,
    always: Cell<bool>,
}

impl Renew for Rc<Script> {
    async fn renew(&self, batch: &Batch) -> Result<Vec<(LeaseId, Answer)>, Error> {
        self.sizes.borrow_mut().push(batch.ids.len());
        let reply =
            if self.always.get() { Reply::Renew } else { self.replies.borrow_mut().pop_front().expect("scripted") };
        let failed = || Error::Unreachable { url: "script".to_owned(), source: "refused".into() };
        let answer = match reply {
            Reply::Renew => Answer::Renewed(TTL),
            Reply::Lose => Answer::Lost(Loss::Disowned),
            Reply::Fail => return Err(failed()),
            Reply::Late(after) => {
                tokio::time::timeout(batch.timeout, tokio::time::sleep(after)).await.map_err(|_| failed())?;
                Answer::Renewed(TTL)
            }
        };
        Ok(batch.ids.iter().map(|id| (*id, answer.clone())).collect())
    }
}

const TTL: Ttl = match Ttl::from_ms_native(30_000) {
    Ok(ttl) => ttl,
    Err(_) => panic!("in range"),
};

/// Runs the heartbeat beside the test.
struct Rig {
    heart: Heart,
    clock: Arc<PausedClock>,
    script: Rc<Script>,
}

impl Rig {
    fn start(replies: impl IntoIterator<Item = Reply>) -> Rig {
        let heart = Heart { roster: Arc::default() };
        let clock = Arc::new(PausedClock::start());
        let script = Rc::new(Script::default());
        script.replies.borrow_mut().extend(replies);
        tokio::task::spawn_local(beat(
            Arc::clone(&heart.roster),
            Rc::clone(&script),
            Arc::clone(&clock) as Arc<dyn Clock>,
        ));
        Rig { heart, clock, script }
    }

    fn keep(&self, number: u64) -> Arc<Pulse> {
        let (beat, now) = (Beat::new(TTL), self.clock.now());
        let pulse = Arc::new(Pulse::new(Token::from_u64(number).into(), now.plus(beat.trusted_for())));
        self.heart.keep(Arc::clone(&pulse), beat, now);
        pulse
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn requests(&self) -> Vec<usize> {
        self.script.sizes.borrow().clone()
    }
}

/// With paused time, on one thread.
fn paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn an_hour_of_a_thousand_leases_is_one_request_per_beat() {
    paused(async {
        let rig = Rig::start([]);
        rig.script.always.set(true);
        let pulses: Vec<_> = (0..1_000).map(|number| rig.keep(number)).collect();
        rig.pass(3_600).await;
        assert!(pulses.iter().all(|pulse| pulse.state(rig.clock.now()) == State::Held));
        let requests = rig.requests();
        assert!((355..=365).contains(&requests.len()), "{}", requests.len());
        assert!(requests.iter().all(|size| *size == 1_000));
    });
}

#[test]
fn an_outage_shorter_than_trust_is_not_noticed_by_the_work() {
    paused(async {
        // Six, because the seventh try comes before trust ends also with the longest pauses that jitter can make.
        let rig = Rig::start((0..6).map(|_| Reply::Fail).chain([Reply::Renew, Reply::Renew]));
        let pulse = rig.keep(1);
        rig.pass(11).await;
        assert_eq!(pulse.state(rig.clock.now()), State::AtRisk);
        rig.pass(17).await;
        assert_eq!((pulse.state(rig.clock.now()), pulse.loss()), (State::Held, None), "{:?}", rig.requests());
    });
}

#[test]
fn an_outage_longer_than_trust_is_a_loss_exactly_when_trust_ends() {
    paused(async {
        let rig = Rig::start((0..1_000).map(|_| Reply::Fail));
        let pulse = rig.keep(1);
        let loss = pulse.lost().await;
        assert_eq!(loss, Loss::OutOfTouch);
        let late = rig.clock.now().since(Moment::from_millis(28_500));
        assert!(rig.clock.now() >= Moment::from_millis(28_500) && late <= Duration::from_millis(5), "{late:?}");
    });
}

#[test]
fn a_server_that_hangs_does_not_delay_the_end_of_trust() {
    paused(async {
        let rig = Rig::start((0..10).map(|_| Reply::Late(Duration::from_secs(3_600))));
        let pulse = rig.keep(1);
        assert_eq!(pulse.lost().await, Loss::OutOfTouch);
        assert!(rig.clock.now().since(Moment::from_millis(28_500)) <= Duration::from_millis(5));
        assert!(rig.requests().len() >= 2, "a hanging request is given up and tried again");
    });
}

#[test]
fn one_renewal_that_hangs_leaves_time_for_two_more_before_the_work_must_stop() {
    paused(async {
        let hang = || Reply::Late(Duration::from_secs(3_600));
        let rig = Rig::start([hang(), hang(), Reply::Renew, Reply::Renew]);
        let pulse = rig.keep(1);
        // Who supervises other processes begins to stop them 7.5 s before trust ends.
        rig.pass(20).await;
        assert_eq!(pulse.state(rig.clock.now()), State::Held, "{:?}", rig.requests());
        assert!(pulse.trusted_for(rig.clock.now()) > Duration::from_secs(20));
    });
}

#[test]
fn the_trust_of_a_slow_answer_counts_from_its_sending() {
    paused(async {
        let slow = Reply::Late(Duration::from_secs(9));
        let rig = Rig::start([slow].into_iter().chain((0..100).map(|_| Reply::Fail)));
        let pulse = rig.keep(1);
        pulse.lost().await;
        let late = rig.clock.now().since(Moment::from_millis(10_000 + 28_500));
        assert!(late <= Duration::from_millis(10), "{late:?}");
    });
}

#[test]
fn a_lease_the_server_has_ended_is_lost_at_the_next_beat() {
    paused(async {
        let rig = Rig::start([Reply::Renew, Reply::Lose]);
        let pulse = rig.keep(1);
        assert_eq!(pulse.lost().await, Loss::Disowned);
        assert!(rig.clock.now().since(Moment::from_millis(20_000)) <= Duration::from_millis(5));
    });
}

#[test]
fn a_forgotten_lease_costs_no_more_requests() {
    paused(async {
        let rig = Rig::start([Reply::Renew]);
        let pulse = rig.keep(1);
        rig.pass(15).await;
        rig.heart.forget(&pulse);
        rig.pass(3_600).await;
        assert_eq!((rig.requests(), pulse.loss()), (vec![1], None));
    });
}

#[test]
fn a_heartbeat_that_ends_takes_no_guard_for_held() {
    paused(async {
        let Rig { heart, clock, script: _script } = Rig::start([]);
        let pulse = Arc::new(Pulse::new(Token::from_u64(1).into(), Moment::from_millis(28_500)));
        heart.keep(Arc::clone(&pulse), Beat::new(TTL), clock.now());
        drop(heart);
        assert_eq!(pulse.lost().await, Loss::HeartbeatStopped);
    });
}
