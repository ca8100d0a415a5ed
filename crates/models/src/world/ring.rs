//! Short lists without allocation, for views that lag behind.

/// A list of at most `N` values. Adding to a full list pushes the oldest value out, which bounds how far a view lags
/// behind.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ring<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self { len: 0, items: [T::default(); N] }
    }
}

impl<T: Copy + Default, const N: usize> Ring<T, N> {
    /// Creates a list of one value.
    #[must_use]
    pub fn of(first: T) -> Self {
        let mut items = [T::default(); N];
        items[0] = first;
        Self { len: 1, items }
    }
    /// Returns the values, oldest first.
    #[must_use]
    pub fn all(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
    /// Returns the values for changes.
    pub(crate) fn all_mut(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
    /// Returns the newest value.
    #[must_use]
    pub fn last(&self) -> T {
        self.all().last().copied().unwrap_or_default()
    }
    /// Removes the `count` oldest values.
    pub(crate) fn drop_oldest(&mut self, count: usize) {
        let kept = usize::from(self.len).saturating_sub(count);
        self.items.copy_within(count..count + kept, 0);
        self.items[kept..].fill(T::default());
        self.len = u8::try_from(kept).unwrap_or_default();
    }
    /// Adds a value. If that exceeds `limit`, the oldest value after the first is removed.
    pub(crate) fn push_after_first(&mut self, value: T, limit: usize) {
        let first = self.items[0];
        if self.push(value, limit) > 0 {
            self.items[0] = first;
        }
    }
    /// Adds a value. Returns the number of values that were pushed out to keep to `limit`.
    pub fn push(&mut self, value: T, limit: usize) -> usize {
        let pushed_out = (usize::from(self.len) + 1).saturating_sub(limit.clamp(1, N));
        self.drop_oldest(pushed_out);
        self.items[usize::from(self.len)] = value;
        self.len += 1;
        pushed_out
    }
}
