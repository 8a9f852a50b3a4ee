//! Owns leaving out what a reader may not see: leases and events about intents whose access list does not let it read them.
//! The ledger says what that is ([`Sight`]). It is not asked where access lists do not count.

use tenure_core::Resource;
use tenure_core::access::Caller as Looker;
use tenure_core::ledger::access::{Look, Sight};
use tenure_core::serial::IntentId;

use super::App;
use crate::engine::Unavailable;

/// What somebody may see of what is about these resources; everything, if it is nobody whom access lists limit.
pub(crate) fn of<'a>(
    app: &App,
    looker: Option<&Looker>,
    about: impl IntoIterator<Item = &'a Resource>,
) -> impl Future<Output = Result<Sight, Unavailable>> {
    let question = looker.and_then(|caller| {
        let mut intents: Vec<IntentId> = about.into_iter().filter_map(Resource::listed_under).collect();
        intents.sort_unstable();
        intents.dedup();
        (!intents.is_empty()).then(|| Look { caller: caller.clone(), intents })
    });
    let engine = app.engine().clone();
    async move {
        match question {
            Some(question) => engine.apply(question).await,
            None => Ok(Sight::default()),
        }
    }
}
