//! Owns changing shared state without losing anyone's update: read, change, write if nobody was faster, else again.

use serde_json::{Map, Value};
use tenure_core::LeaseId;

use crate::error::Error;
use crate::intents::{Expected, Intent, Intents};

/// So many writers in a row may be faster before a write gives up.
pub const STATE_TRIES_MAX: u32 = 20;

impl Intents {
    /// Changes the state by what `change` makes of the intent as it is. `change` runs again if another writer was faster;
    /// nothing is written if it gives an empty patch.
    ///
    /// # Errors
    /// Code `stale_version` after [`STATE_TRIES_MAX`] tries; otherwise as [`Intents::patch_state`].
    pub async fn update_state(
        &self,
        id: &str,
        relies_on: Option<LeaseId>,
        mut change: impl FnMut(&Intent) -> Map<String, Value>,
    ) -> Result<Intent, Error> {
        let mut tries = 0;
        loop {
            let intent = self.get(id).await?;
            let patch = change(&intent);
            if patch.is_empty() {
                return Ok(intent);
            }
            tries += 1;
            match self.patch_state(id, &patch, Expected::Version(intent.version), relies_on).await {
                Err(error) if error.code() == "stale_version" && tries < STATE_TRIES_MAX => {}
                other => return other,
            }
        }
    }
}
