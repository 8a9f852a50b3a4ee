//! Owns the memory of keyed acquires (L7): the same request under the same key gets the same answer, while its lease
//! is active and for [`IDEMPOTENCY_KEEP_MS`](crate::limits::IDEMPOTENCY_KEEP_MS) after it.

use std::collections::HashMap;

use crate::change::Keyed;
use crate::command::{Acquire, WaiterId};
use crate::{Holder, Token};

type Name = (Holder, Box<str>);

/// What a key stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyUse {
    /// It was answered with a lease.
    Answered(Token),
    /// It is still in line.
    Waiting(WaiterId),
}

/// All remembered keys.
#[derive(Default)]
pub(crate) struct Keys {
    uses: HashMap<Name, (KeyUse, u64)>,
    answered: HashMap<Token, Keyed>,
}

impl Keys {
    /// What this request's key was used for, and the fingerprint of that request.
    pub(crate) fn find(&self, request: &Acquire) -> Option<(KeyUse, u64)> {
        let name = (request.holder.clone(), request.key.clone()?);
        self.uses.get(&name).copied()
    }

    pub(crate) fn wait(&mut self, request: &Acquire, waiter: WaiterId) {
        if let Some(key) = &request.key {
            let name = (request.holder.clone(), key.clone());
            self.uses.insert(name, (KeyUse::Waiting(waiter), fingerprint(request)));
        }
    }

    /// Forgets the key of a wait that was answered with no lease.
    pub(crate) fn leave(&mut self, request: &Acquire) {
        if let Some(key) = &request.key {
            self.uses.remove(&(request.holder.clone(), key.clone()));
        }
    }

    pub(crate) fn insert(&mut self, keyed: Keyed) {
        let name = (keyed.holder.clone(), keyed.key.clone());
        self.uses.insert(name, (KeyUse::Answered(keyed.token), keyed.fingerprint));
        self.answered.insert(keyed.token, keyed);
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Keyed> {
        self.answered.get(&token)
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Keyed> {
        self.answered.get_mut(&token)
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Keyed> {
        let keyed = self.answered.remove(&token)?;
        self.uses.remove(&(keyed.holder.clone(), keyed.key.clone()));
        Some(keyed)
    }

    pub(crate) fn len(&self) -> usize {
        self.answered.len()
    }
}

/// Tells one request from another: everything that shapes the grant, not how long its caller is willing to wait.
/// FNV-1a, because it is stored and must be the same in every version. Two names have the same text as one with a comma in
/// it, and that cannot be changed for those that are stored: who compares looks at the resources too.
pub(crate) fn fingerprint(request: &Acquire) -> u64 {
    let metadata = request.metadata.as_ref().map_or("", |metadata| metadata.get());
    let shape = format!(
        "{:?} {:?} {} {} {:?} {metadata}",
        request.resources,
        request.mode,
        request.ttl.ms(),
        request.grace_ms,
        request.within
    );
    shape.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
