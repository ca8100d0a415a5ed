//! Chromium, driven over its debugging pipe by JSON messages, each ended by a zero byte. It opens a page at a width, in
//! light or dark.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time limit of a browser, in seconds.
const LONGEST: &str = "240";

/// A screen, and its color scheme.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
}

/// A running Chromium. Dropping it ends it.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    events: VecDeque<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the binary with a fresh profile and an empty page.
    pub(crate) fn start(binary: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The pipe uses file descriptors 3 and 4; all other output is discarded.
        let mut child = Command::new("timeout")
            .args(["-k", "5", LONGEST, "sh", "-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", binary])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { child, input, output, session: None, calls: 0, events: VecDeque::new(), _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", &json!({}));
        browser
    }

    /// Opens a page on a screen, and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str, screen: Screen) {
        let Screen { width, height, dark } = screen;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
        self.events.clear();
        let navigated = self.call("Page.navigate", &json!({ "url": url }));
        assert_eq!(navigated["errorText"], Value::Null, "{url}");
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.read();
            self.events.push_back(event);
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let result = self.call("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }));
        assert_eq!(result["exceptionDetails"], Value::Null, "{expression}");
        result["result"]["value"].clone()
    }

    /// Returns the screen as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        self.input.flush().unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == id {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.output.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself once its pipe is closed, or else by its time limit.
        let message = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.input.write_all(message);
        let _ = self.child.wait();
    }
}
