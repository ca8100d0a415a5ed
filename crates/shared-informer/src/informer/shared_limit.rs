//! The limit of bytes that the objects of several kinds share. Each store counts its own in it, as they come and go: a
//! check must cost the same whatever the number of objects.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::failure::Failure;

/// A limit of the memory of several informers' objects in bytes, estimated as for
/// [`Settings::max_bytes`](crate::Settings::max_bytes). A clone is the same limit.
///
/// ```
/// use shared_informer::{Settings, SharedLimit};
///
/// let all = SharedLimit::new(128 << 20);
/// // Of these, templates have a quarter, so that they take no more from the other kinds.
/// let templates = Settings { shared_limit: Some(all.part(32 << 20)), ..Settings::default() };
/// let others = Settings { shared_limit: Some(all), ..Settings::default() };
/// # let _ = (templates, others);
/// ```
#[derive(Clone, Debug)]
pub struct SharedLimit(Arc<Limit>);

#[derive(Debug)]
struct Limit {
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
    /// Creates a limit.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Limit { max_bytes, used: AtomicUsize::new(0), whole: None }))
    }

    /// Creates a limit of a part of this one: what it counts counts in both.
    #[must_use]
    pub fn part(&self, max_bytes: usize) -> Self {
        Self(Arc::new(Limit { max_bytes, used: AtomicUsize::new(0), whole: Some(self.clone()) }))
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
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub(super) fn check(&self, more: usize) -> Result<(), Failure> {
        let Limit { max_bytes, whole, .. } = &*self.0;
        if self.used().saturating_add(more) > *max_bytes {
            let what =
                format!("the kept fields of all objects, other kinds' included, have more than {max_bytes} bytes");
            return Err(Failure::BeyondLimit(what));
        }
        whole.as_ref().map_or(Ok(()), |whole| whole.check(more))
    }
}

/// The memory of the objects of one store. It counts in the shared limit until the store is dropped.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: usize,
    shared: Option<SharedLimit>,
}

impl Kept {
    pub(super) fn new(shared: Option<SharedLimit>) -> Self {
        Self { bytes: 0, shared }
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
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.subtract(self.bytes);
    }
}
