//! The limit of bytes that the objects of several kinds share. Each store counts its own in it, as they come and go: a
//! check must cost the same whatever the number of objects.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::failure::Failure;

/// The part of a limit that each informer has whatever the others use, so that a large kind stops no small ones.
const OF_EACH: usize = 128;

/// A limit of the memory of several informers' objects in bytes, estimated as for
/// [`Settings::max_bytes`](crate::Settings::max_bytes). Beyond it each informer still has a 128th of it. A clone is the
/// same limit.
///
/// ```
/// use shared_informer::{Settings, SharedLimit};
///
/// let all = SharedLimit::new("all objects", 128 << 20);
/// // Of these, templates have a quarter, so that they take no more from the other kinds.
/// let of_templates = all.part("all templates", all.max_bytes() / 4);
/// let templates = Settings { shared_limit: Some(of_templates), ..Settings::default() };
/// let others = Settings { shared_limit: Some(all), ..Settings::default() };
/// # let _ = (templates, others);
/// ```
#[derive(Clone, Debug)]
pub struct SharedLimit(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    /// The objects that share it, for messages.
    name: String,
    max_bytes: usize,
    used: AtomicUsize,
    whole: Option<SharedLimit>,
}

impl PartialEq for SharedLimit {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedLimit {}

impl SharedLimit {
    /// Creates a limit of the objects that messages call `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, max_bytes: usize) -> Self {
        Self(Arc::new(Limit { name: name.into(), max_bytes, used: AtomicUsize::new(0), whole: None }))
    }

    /// Creates a limit of a part of this one: what it counts counts in both.
    #[must_use]
    pub fn part(&self, name: impl Into<String>, max_bytes: usize) -> Self {
        let whole = Some(self.clone());
        Self(Arc::new(Limit { name: name.into(), max_bytes, used: AtomicUsize::new(0), whole }))
    }

    /// Returns the limit.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes
    }

    /// Returns the bytes that are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.add(bytes);
        }
    }

    fn subtract(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.subtract(bytes);
        }
    }

    /// Checks that so many more bytes are within the limit, and within the whole.
    fn check(&self, more: usize) -> Result<(), Failure> {
        let Limit { name, max_bytes, whole, .. } = &*self.0;
        if self.used().saturating_add(more) > *max_bytes {
            return Err(Failure::beyond(name, *max_bytes));
        }
        whole.as_ref().map_or(Ok(()), |whole| whole.check(more))
    }
}

/// The memory of the objects of one store, with its limits. It counts in the shared limit until the store is dropped.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: usize,
    max_bytes: usize,
    shared: Option<SharedLimit>,
}

impl Kept {
    pub(super) fn new(max_bytes: usize, shared: Option<SharedLimit>) -> Self {
        Self { bytes: 0, max_bytes, shared }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.shared.iter().for_each(|shared| shared.add(bytes));
    }

    pub(super) fn subtract(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.shared.iter().for_each(|shared| shared.subtract(bytes));
    }

    /// Checks that the objects of a list may take so many more bytes: as many again as are kept otherwise, since they
    /// come beside those that the list hasn't come to.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub(super) fn check_list(&self, more: usize) -> Result<(), Failure> {
        if more > 0 && self.bytes.saturating_add(more) > self.max_bytes.saturating_mul(2) {
            return Err(Failure::beyond("all objects", self.max_bytes));
        }
        self.check_shared(more)
    }

    /// Checks that so many more bytes are within the shared limit.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub(super) fn check_shared(&self, more: usize) -> Result<(), Failure> {
        match &self.shared {
            Some(shared) if more > 0 && self.bytes.saturating_add(more) > shared.max_bytes() / OF_EACH => {
                shared.check(more)
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.subtract(self.bytes);
    }
}
