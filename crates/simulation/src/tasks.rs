//! The order and the delay of a copy's tasks. Tokio polls ready tasks in the order in which they were woken; here a
//! task may be moved to the end of that order, and chosen tasks pause, as on a node with busy processors.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use shared_informer::Spawner;
use tokio::{
    runtime::Handle,
    time::{Sleep, sleep},
};

use crate::{
    entropy::{self, Nanos},
    faults::Decision,
    plan::Chance,
};

const LONGEST: u64 = 60_000;

/// The state that schedulers share with the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) struck: Arc<Mutex<Vec<Decision>>>,
    /// The times of the pauses, with the copy.
    pub(crate) pauses: Arc<Mutex<Vec<Pause>>>,
}

/// A time in which a task didn't run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) copy: usize,
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
}

/// Decides when the tasks of one copy run.
#[derive(Clone)]
pub(crate) struct Scheduler {
    inner: Arc<Inner>,
}

struct Inner {
    chance: Chance,
    copy: usize,
    until: Nanos,
    /// The percentage of polls that are moved to the end of the order.
    shuffled: u32,
    /// The percentage of tasks that are starved.
    starved: u32,
    skipped: BTreeSet<Decision>,
    shared: Shared,
    /// The number of tasks so far.
    tasks: AtomicU64,
}

impl Scheduler {
    /// Creates the scheduler of a copy, with pauses of its tasks until a time.
    pub(crate) fn new(chance: Chance, copy: usize, until: Nanos, skipped: BTreeSet<Decision>, shared: Shared) -> Self {
        let mut draw = chance.of("scheduler", 0, 0);
        let shuffled = [0, 0, 10, 40][draw.usize(0..4)];
        let starved = [0, 0, 0, 20][draw.usize(0..4)];
        let tasks = AtomicU64::default();
        Self { inner: Arc::new(Inner { chance, copy, until, shuffled, starved, skipped, shared, tasks }) }
    }

    pub(crate) fn spawner(&self, runtime: &Handle) -> Spawner {
        let scheduler = self.clone();
        Spawner::from(runtime).around(move |task| Box::pin(scheduler.schedule(task)))
    }

    pub(crate) fn schedule<F: Future + Unpin>(&self, task: F) -> Scheduled<F> {
        let number = self.inner.tasks.fetch_add(1, Ordering::Relaxed);
        let is_starved = self.inner.chance.of("starved", self.inner.copy, number).u32(0..100) < self.inner.starved;
        Scheduled { task, scheduler: self.clone(), number, polls: 0, is_starved, pause: None }
    }
}

pub(crate) struct Scheduled<F> {
    task: F,
    scheduler: Scheduler,
    number: u64,
    /// The number of polls so far.
    polls: u64,
    is_starved: bool,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<F> Scheduled<F> {
    /// Draws the time that the task waits: `None` runs it now, and zero moves it to the end of the order.
    fn wait(&mut self) -> Option<Duration> {
        let inner = &self.scheduler.inner;
        if inner.shuffled == 0 && !self.is_starved {
            return None;
        }
        self.polls += 1;
        let ordinal = self.number << 24 | self.polls;
        let mut draw = inner.chance.of("poll", inner.copy, ordinal);
        if self.is_starved && draw.u32(0..100) < 4 && entropy::now() < inner.until {
            let decision = Decision { what: "task", actor: inner.copy, ordinal };
            if !inner.skipped.contains(&decision) {
                let (pause, began) = (Duration::from_millis(draw.u64(1..LONGEST)), entropy::now());
                let ended = began + u64::try_from(pause.as_nanos()).unwrap_or_default();
                inner.shared.struck.lock().push(decision);
                inner.shared.pauses.lock().push(Pause { copy: inner.copy, began, ended });
                return Some(pause);
            }
        }
        (draw.u32(0..100) < inner.shuffled).then_some(Duration::ZERO)
    }
}

impl<F: Future + Unpin> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(context));
            this.pause = None;
        } else {
            match this.wait() {
                None => {}
                Some(Duration::ZERO) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(pause) => {
                    let mut pause = Box::pin(sleep(pause));
                    if pause.as_mut().poll(context).is_pending() {
                        this.pause = Some(pause);
                        return Poll::Pending;
                    }
                }
            }
        }
        Pin::new(&mut this.task).poll(context)
    }
}
