//! Owns what was decided and is not on the disk yet: one open batch that grows, and how those who wait for it hear of its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_core::Token;
use tenure_core::change::{Batch, Change};
use tenure_core::event::Event;
use tenure_core::task::command::TaskView;
use tokio::sync::{SetOnce, oneshot};

use super::Unavailable;
use super::waits::Answer;

/// What became of a batch; shared by everyone whose answer rests on it.
#[derive(Default)]
pub(super) struct Fate(SetOnce<bool>);

impl Fate {
    /// It is on the disk.
    pub(super) fn fulfil(&self) {
        self.0.set(true).ok();
    }

    /// Nobody will know before the next start. No change if it is known.
    pub(super) fn give_up(&self) {
        self.0.set(false).ok();
    }

    /// Comes back when it is on the disk.
    pub(super) async fn wait(&self) -> Result<(), Unavailable> {
        if *self.0.wait().await { Ok(()) } else { Err(Unavailable::Stopped) }
    }
}

/// The answer of a wait that ended, on its way to who waited.
pub(super) enum Delivery {
    /// To everyone who asked for the same acquire.
    Lease(Vec<oneshot::Sender<Answer>>, Answer),
    /// To who polled.
    Poll(oneshot::Sender<Vec<TaskView>>, Vec<TaskView>),
}

impl Delivery {
    /// Tells who waited. What nobody is there to take comes back.
    pub(super) fn deliver(self) -> Vec<TaskView> {
        match self {
            // Nobody listens any more: the client went away, and what it asked for has happened.
            Delivery::Lease(clients, answer) => {
                for to in clients {
                    to.send(answer.clone()).ok();
                }
                Vec::new()
            }
            Delivery::Poll(to, tasks) => to.send(tasks).err().unwrap_or_default(),
        }
    }
}

/// What was decided since the last batch was sealed.
#[derive(Default)]
pub(super) struct Open {
    pub(super) changes: Vec<Change>,
    pub(super) events: Vec<Event>,
    pub(super) deliveries: Vec<Delivery>,
    /// How many answers rest on it.
    pub(super) commands: usize,
    /// Whether there is something in it that must be on the disk before anyone hears of it.
    pub(super) is_durable: bool,
    /// The leases on the disk that it changes, other than by their end.
    pub(super) altered: BTreeSet<Token>,
    pub(super) fate: Arc<Fate>,
}

/// The room for changes that is made ready at most.
const ROOM_MAX: usize = 1_024;

impl Open {
    /// An empty one, with room for what another has: under load one batch is much like the one before, and growing step by step
    /// would move all of it each time. The room comes in few sizes, so that the allocator gives out again what it got back.
    pub(super) fn with_room_of(other: &Open) -> Open {
        let room = |used: usize| used.next_power_of_two().min(ROOM_MAX);
        Open {
            changes: Vec::with_capacity(room(other.changes.len())),
            events: Vec::with_capacity(room(other.events.len())),
            ..Open::default()
        }
    }

    /// Whether someone waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_durable || !self.deliveries.is_empty()
    }
}

/// What is known of the batch on its way to the disk.
pub(super) struct InFlight {
    pub(super) fate: Arc<Fate>,
    /// The last token granted by then.
    pub(super) token: Option<Token>,
    pub(super) altered: BTreeSet<Token>,
}

/// A batch on its way to the disk.
pub(super) struct Sealed {
    /// Nothing if there are only answers to deliver.
    pub(super) batch: Option<Batch>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) commands: usize,
    pub(super) fate: Arc<Fate>,
}
