//! Owns what "of this process" means: a forked child inherits the memory, not the threads, and the locks in it may be held for
//! ever. So it neither uses what its parent made nor drops it.

/// Something of one process.
pub(crate) struct Own<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> Own<T> {
    /// Nothing yet.
    pub(crate) const fn nothing() -> Own<T> {
        Own { pid: 0, value: None }
    }

    pub(crate) fn new(value: T) -> Own<T> {
        Own { pid: std::process::id(), value: Some(value) }
    }

    /// Whose it is.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Nothing in a forked child.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_ours())
    }

    /// Nothing in a forked child.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_ours() { self.value.take() } else { None }
    }
}

impl<T: Default> Own<T> {
    /// A new one in a forked child.
    pub(crate) fn get_or_default(&mut self) -> &mut T {
        if !self.is_ours() {
            *self = Own::new(T::default());
        }
        self.value.get_or_insert_default()
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
