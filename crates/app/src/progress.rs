//! Reports the progress of the first lists at the start: bars on a terminal, else a log line per cache from time to
//! time. It must never delay the lists, and ends when all of them are complete.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tracing::info;

use shared_informer::Status;

/// The interval at which the caches are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The delay before the first log line of a cache. The delay doubles after each line.
const FIRST_LINE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Each cache's status and its cluster's name.
pub(super) type Caches = Vec<(&'static str, Status)>;

/// Reports the caches until `poll` reports that no more will be added and all of them are complete.
pub(super) async fn follow(mut poll: impl FnMut() -> (Caches, bool), bars: Option<&MultiProgress>) {
    let mut progress = Progress::new(bars);
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let (caches, all_there) = poll();
        // This loop doesn't wait for a broken cache. If a check needs the cache, `all_there` stays false.
        let complete = caches.iter().all(|(_, status)| status.synced || status.reason.is_some());
        progress.update(&caches, Instant::now());
        if all_there && complete {
            return;
        }
    }
}

/// The progress that was reported so far. Dropping it removes its bars from the screen.
struct Progress<'a> {
    bars: Option<&'a MultiProgress>,
    caches: Vec<Cache>,
}

/// The reported progress of one cache.
struct Cache {
    name: Name,
    begun: Instant,
    next_line: Instant,
    pause: Duration,
    complete: bool,
    bar: Option<ProgressBar>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Name {
    cluster: &'static str,
    resource: String,
    namespaces: String,
    selectors: String,
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl<'a> Progress<'a> {
    fn new(bars: Option<&'a MultiProgress>) -> Self {
        Self { bars, caches: Vec::new() }
    }

    fn update(&mut self, caches: &Caches, now: Instant) {
        for (cluster, status) in caches {
            let name = Name {
                cluster,
                resource: status.resource.clone(),
                namespaces: status.namespaces.clone(),
                selectors: status.selectors.clone(),
            };
            let known = self.caches.iter().position(|cache| cache.name == name);
            let known = known.unwrap_or_else(|| {
                self.caches.push(Cache::new(name, self.bars, now));
                self.caches.len() - 1
            });
            if let Some(cache) = self.caches.get_mut(known) {
                cache.report(status, now);
            }
        }
    }
}

impl Cache {
    fn new(name: Name, bars: Option<&MultiProgress>, now: Instant) -> Self {
        // The bar is configured before it is first drawn.
        let named =
            || styled(ProgressBar::no_length(), None).with_prefix(format!("{}: {}", name.cluster, name.resource));
        let bar = bars.map(|bars| bars.add(named()));
        Self { name, begun: now, next_line: now + FIRST_LINE, pause: FIRST_LINE, complete: false, bar }
    }

    fn report(&mut self, status: &Status, now: Instant) {
        if self.complete {
            return;
        }
        let Name { cluster, resource, .. } = &self.name;
        let (objects, remaining, namespaces) = (status.objects, status.remaining, &self.name.namespaces);
        let seconds = now.saturating_duration_since(self.begun).as_secs();
        if status.synced {
            self.complete = true;
            // The bar is removed first, so that the line takes its place.
            self.bar.take().inspect(ProgressBar::finish_and_clear);
            info!(cluster, resource, namespaces, objects, seconds, "the first list is complete");
            return;
        }
        if let Some(bar) = &self.bar {
            draw(bar, status);
        } else if now >= self.next_line {
            self.next_line = now + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            let reason = status.reason.as_deref();
            info!(cluster, resource, namespaces, objects, remaining, seconds, reason, "the first list is coming");
        }
    }
}

/// Styles a bar if the total is known, else as a spinner.
fn styled(bar: ProgressBar, total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "{prefix} [{bar:20}] {human_pos} of {human_len}  {elapsed}  {wide_msg}",
        None => "{prefix} {spinner} {human_pos} objects  {elapsed}  {wide_msg}",
    };
    // The templates are constants; if one were invalid, the bar would keep its style.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn draw(bar: &ProgressBar, status: &Status) {
    let objects = u64::try_from(status.objects).unwrap_or(u64::MAX);
    let total = status.remaining.map(|remaining| objects.saturating_add(remaining)).filter(|&total| total > 0);
    if total != bar.length() {
        drop(styled(bar.clone(), total));
        match total {
            Some(total) => bar.set_length(total),
            None => bar.unset_length(),
        }
    }
    let why = status.reason.as_deref().unwrap_or_default();
    bar.set_message(rules::text::visible(why).into_owned());
    bar.set_position(objects);
    bar.tick();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;
    use testkit::CapturedLog;

    fn machines(objects: usize, remaining: Option<u64>, synced: bool) -> Caches {
        let status = Status {
            resource: "machines.v1beta2.cluster.x-k8s.io".to_owned(),
            namespaces: "team-a".to_owned(),
            selectors: String::new(),
            synced,
            stopped: false,
            reason: None,
            last_error: None,
            broken_since: None,
            objects,
            remaining,
            undecodable: 0,
            nameless: 0,
            left_out: 0,
            events: shared_informer::EventCounts::default(),
            lists: shared_informer::ListCounts::default(),
            watch_errors: 0,
            decode_errors: 0,
            handler_panics: 0,
            handlers: Vec::new(),
            last_event: None,
            last_list: None,
        };
        vec![("management", status)]
    }

    /// Returns the lines that are logged when the cache is polled after these numbers of seconds.
    fn said(bars: Option<&MultiProgress>, polls: &[(u64, Caches)]) -> Vec<String> {
        let begun = Instant::now();
        let text = CapturedLog::of(|| {
            let mut progress = Progress::new(bars);
            for (seconds, caches) in polls {
                progress.update(caches, begun + Duration::from_secs(*seconds));
            }
        });
        text.lines().map(|line| line.split_once("progress: ").unwrap().1.to_owned()).collect()
    }

    const OF: &str = "cluster=\"management\" resource=\"machines.v1beta2.cluster.x-k8s.io\" namespaces=\"team-a\"";

    #[test]
    fn a_list_that_takes_long_is_reported_in_growing_pauses_and_at_its_end() {
        let polls: Vec<_> = (0..=10).map(|seconds| (seconds, machines(100, None, false))).collect();
        let lines =
            said(None, &[polls, vec![(11, machines(200, None, true)), (12, machines(201, None, true))]].concat());
        let coming = |seconds: u32| format!("the first list is coming {OF} objects=100 seconds={seconds}");
        let complete = format!("the first list is complete {OF} objects=200 seconds=11");
        assert_eq!(lines, [coming(2), coming(4), coming(8), complete]);
    }

    #[test]
    fn a_quick_list_is_one_line() {
        let lines = said(None, &[(0, machines(0, None, false)), (1, machines(3, None, true))]);
        assert_eq!(lines, [format!("the first list is complete {OF} objects=3 seconds=1")]);
    }

    #[test]
    fn pages_say_how_much_is_still_to_come() {
        let lines = said(None, &[(0, machines(0, None, false)), (5, machines(500, Some(1500), false))]);
        assert_eq!(lines, [format!("the first list is coming {OF} objects=500 remaining=1500 seconds=5")]);
    }

    #[test]
    fn bars_stand_for_the_lines_until_a_list_is_complete() {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let polls = [(0, machines(0, None, false)), (60, machines(9, Some(1), false)), (61, machines(10, None, true))];
        assert_eq!(said(Some(&bars), &polls), [format!("the first list is complete {OF} objects=10 seconds=61")]);
    }
}
