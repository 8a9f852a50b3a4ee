//! Leases that live in a git repository: refs under `refs/grite/locks/`, decided by compare-and-swap.
//!
//! Owns the ref and object format, the rules of who gets a ref, the talk with `git`, the identities of agents in a
//! clone, the policy checks and the small issue list. The given `now` is the only time. It relies on git for every
//! change of a ref, local or remote, so every shape of repository that git knows works; only in the plainest shape are
//! refs read and changed as files, by git's own protocol.
//!
//! With a remote, **the remote's ref is the lock** and a push with the expected old value is the only way to change
//! it. The invariants, cited in the code:
//!
//! - **G1** Nothing is granted before the judge (the remote, or this repository when there is none) took the change.
//! - **G2** Every change names the commit it was judged on, for every ref it touches, and all of them change or none.
//! - **G3** Every grant bumps the guard `refs/tenure/guard` in the same change, so two grants never rest on the same
//!   view. The guard's generation is the token.
//! - **G4** A grant over an overlapping lock that has lapsed marks that lock released in the same change, so that a
//!   late renewal of it fails instead of living beside the grant. Where there are too many for one change, they are
//!   removed or marked released before it.
//! - **G5** A lock commit's parent is the commit it replaces; a release is a commit too. So clones of other programs
//!   only ever fast-forward.
//!
//! Does not promise that a holder with a stopped clock or a suspended machine has stopped working (that is what the
//! token is for), and cannot stop a program that grants itself locks without asking the remote.

pub mod actor;
pub mod error;
pub mod gc;
pub mod git;
pub mod guard;
pub mod heal;
pub mod issue;
pub mod judge;
pub mod lease;
pub mod limits;
mod loose;
pub mod name;
pub mod objects;
mod plain;
pub mod policy;
pub mod record;
pub mod remote;
pub mod repo;
mod round;
mod shortcut;
pub mod status;
mod swap;
pub mod view;

pub use error::{Conflict, Error, NotHeld, Why};
pub use lease::{Ask, Clock, Granted, Locks, Renewed};
pub use name::LockName;
pub use repo::{Mode, Repo};
