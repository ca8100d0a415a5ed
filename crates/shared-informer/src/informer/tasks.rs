//! Starts tasks. Every task that outlives its caller must be started through a [`Spawner`], so that a test can decide
//! when it runs.

use std::{fmt, pin::Pin, sync::Arc};

use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::task::TaskTracker;

/// A task.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks on a runtime. Clones are cheap.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use shared_informer::Spawner;
/// let spawner = Spawner::from(tokio::runtime::Handle::current());
/// spawner.spawn(async {}).await.unwrap();
/// # });
/// ```
#[derive(Clone)]
pub struct Spawner {
    runtime: Handle,
    around: Option<Arc<dyn Fn(Task) -> Task + Send + Sync>>,
}

impl Spawner {
    /// Wraps each started task with `around`, by which the simulation delays tasks.
    #[must_use]
    pub fn around(self, around: impl Fn(Task) -> Task + Send + Sync + 'static) -> Self {
        Self { around: Some(Arc::new(around)), ..self }
    }

    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.around {
            None => self.runtime.spawn(task),
            Some(around) => self.runtime.spawn(around(Box::pin(task))),
        }
    }

    /// Starts a task that `tracker` tracks.
    pub fn spawn_tracked(&self, tracker: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
        match &self.around {
            None => tracker.spawn_on(task, &self.runtime),
            Some(around) => tracker.spawn_on(around(Box::pin(task)), &self.runtime),
        };
    }

    /// Lets other threads run on the processor of this one, unless tasks are wrapped: a simulation has one thread, and
    /// its time doesn't pass with that of the machine.
    pub fn yield_thread(&self) {
        if self.around.is_none() {
            std::thread::yield_now();
        }
    }
}

impl From<Handle> for Spawner {
    fn from(runtime: Handle) -> Self {
        Self { runtime, around: None }
    }
}

impl From<&Handle> for Spawner {
    fn from(runtime: &Handle) -> Self {
        Self::from(runtime.clone())
    }
}

impl From<&Self> for Spawner {
    fn from(spawner: &Self) -> Self {
        spawner.clone()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("is_wrapped", &self.around.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_wrapper_of_the_spawner_wraps_every_task() {
        let wrapped = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wrapped);
        let spawner = Spawner::from(Handle::current()).around(move |task| {
            counted.fetch_add(1, Ordering::Relaxed);
            task
        });
        spawner.spawn(async {}).await.unwrap();
        let tracker = TaskTracker::new();
        spawner.spawn_tracked(&tracker, async {});
        tracker.close();
        tracker.wait().await;
        assert_eq!(wrapped.load(Ordering::Relaxed), 2);
    }
}
