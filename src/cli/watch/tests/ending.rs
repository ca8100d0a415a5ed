//! Tests of slow and missing readers, and of notifications during that time.

use std::sync::{Condvar, Mutex};

use super::*;

/// An output whose writes block until it is opened.
#[derive(Clone, Default)]
struct Stuck {
    open: Arc<(Mutex<bool>, Condvar)>,
    printed: Printed,
}

impl Stuck {
    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

impl Write for Stuck {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let (open, opened) = &*self.open;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        self.printed.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output without a reader.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a Slack-like receiver that keeps its messages, and returns its URL.
async fn receiver() -> (String, watch::Receiver<Vec<Value>>) {
    let (router, received) = testkit::receiver();
    let (address, _) = testkit::serve(router).await;
    (format!("http://{address}/services/T0P-S3CR3T"), received)
}

async fn messages(received: &watch::Receiver<Vec<Value>>, count: usize) -> Vec<Value> {
    let mut received = received.clone();
    let enough = received.wait_for(|received| received.len() >= count);
    tokio::time::timeout(PATIENCE, enough).await.expect("messages come").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_stuck_holds_up_no_watch_and_no_notification() {
    let fake = Fake::usual().await;
    let (url, received) = receiver().await;
    let file = fake.folder().join("url");
    std::fs::write(&file, url).unwrap();
    let out = Stuck::default();
    let webhook = format!("file:{}", file.display());
    let watch = begin(&fake, &["machines", "--webhook", &webhook], out.clone()).await.unwrap();
    all_reported(&watch).await;
    for n in 0..300 {
        fake.put("machines", &format!("team-a/m{n}"), json!({}));
    }
    let mut heard = 0;
    let mut count = 0;
    while heard < 300 {
        count += 1;
        let reported = messages(&received, count).await;
        heard = reported.iter().map(|message| message["changes"].as_array().unwrap().len()).sum();
    }
    // Changes that wait for the reader are merged: many changes of one object are one line.
    for n in 0..100 {
        fake.put("machines", "team-a/m299", json!({"spec": {"n": n}}));
    }
    fake.put("machines", "team-a/last", json!({}));
    loop {
        count += 1;
        let reported = messages(&received, count).await;
        if reported.last().unwrap().to_string().contains("\"last\"") {
            break;
        }
    }
    assert_eq!(*out.printed.0.borrow(), "");
    out.open();
    let lines = out.printed.json(301).await;
    let of_last: Vec<_> = lines.iter().filter(|line| line["name"] == "m299").collect();
    assert_eq!(of_last.len(), 1, "{of_last:?}");
    assert_eq!(of_last[0]["patch"][0]["value"]["spec"]["n"], 99);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_comes_while_a_reader_is_stuck() {
    let fake = Fake::usual().await;
    let out = Stuck::default();
    let watch = begin(&fake, &["machines"], out.clone()).await.unwrap();
    all_reported(&watch).await;
    for n in 0..200 {
        fake.put("machines", &format!("team-a/m{n}"), json!({}));
    }
    let shutdown = Shutdown::new();
    shutdown.request();
    let end = tokio::time::timeout(Duration::from_secs(8), watch.finish(&shutdown)).await;
    end.expect("it ends in time").unwrap();
    // The writer thread still blocks.
    out.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_it_quietly() {
    let fake = Fake::usual().await;
    let watch = begin(&fake, &["machines"], Gone).await.unwrap();
    all_reported(&watch).await;
    fake.put("machines", "team-a/a", json!({}));
    tokio::time::timeout(PATIENCE, watch.finish(&Shutdown::new())).await.expect("it ends by itself").unwrap();
}
