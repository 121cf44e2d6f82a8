//! Connection with the runtime: calls in both directions over one socket.
//!
//! Properties: input of the runtime is hostile until it is parsed; a frame or message that cannot
//! be read ends the connection and nothing else. No call waits longer than its patience, and no
//! write longer than `WRITE_MAX`, so that a runtime that hangs costs this connection only. At
//! most `CALLS_MAX` calls of the runtime are worked on at a time.

use crate::message::RUNTIME_SERVICE;
use crate::mux::{FrameTooLong, PLUGIN, RUNTIME, Splitter, frames};
use crate::ttrpc::{
    Assembler, CallRequest, CallStatus, Frame, MessageTooLong, REMOTE_CLOSED, REQUEST, RESPONSE, Response,
    code,
};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Longest time of a write. Chosen: the runtime reads at once, or it hangs.
const WRITE_MAX: Duration = Duration::from_secs(2);
/// Most calls of the runtime at a time. Chosen: it makes one after the other.
const CALLS_MAX: usize = 32;

/// Why a connection ended.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    /// A frame that is too long.
    #[error("the runtime sent {0}")]
    Frame(#[from] FrameTooLong),
    /// A message that is too long.
    #[error("the runtime sent {0}")]
    Message(#[from] MessageTooLong),
}

/// Why a call of the runtime failed.
#[derive(Debug, Error)]
pub enum CallError {
    /// It was not sent.
    #[error("it cannot be sent: {0}")]
    Unsent(#[from] LinkError),
    /// The runtime refuses.
    #[error("the runtime refuses: {}", .0.message)]
    Refused(CallStatus),
    /// No answer in time.
    #[error("the runtime did not answer in {} s", .0.as_secs())]
    Late(Duration),
    /// The connection ended.
    #[error("the connection ended before the runtime answered")]
    Closed,
    /// The answer cannot be read.
    #[error("the runtime's answer cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
}

/// A connection with the runtime.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    writing: Mutex<()>,
    calls: Mutex<Calls>,
    open_calls: AtomicUsize,
}

/// Calls of the runtime that have no answer yet.
#[derive(Debug)]
struct Calls {
    next: u32,
    waiting: BTreeMap<u32, SyncSender<Response>>,
}

/// A call by the runtime. If it is dropped, the runtime gets an error.
#[derive(Debug)]
pub struct Call {
    link: Arc<Link>,
    stream: u32,
    answered: bool,
    /// Name of the service.
    pub service: String,
    /// Name of the method.
    pub method: String,
    /// The argument.
    pub payload: Vec<u8>,
    /// Time after which the runtime gives up, if it says so.
    pub patience: Option<Duration>,
}

impl Call {
    /// Answers the call.
    pub fn answer(mut self, result: Result<Vec<u8>, CallStatus>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Vec<u8>, CallStatus>) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let response = match result {
            Ok(payload) => Response { status: None, payload },
            Err(status) => Response { status: Some(status), payload: Vec::new() },
        };
        let (stream, payload) = (self.stream, response.encode_to_vec());
        // A connection that has ended is noticed by its reader.
        let _ = self.link.send(PLUGIN, &Frame { stream, kind: RESPONSE, flags: 0, payload });
        self.link.open_calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.send(Err(status(code::DEADLINE_EXCEEDED, "the plug-in did not decide")));
    }
}

/// Makes the status of a failed call.
pub fn status(code: i32, message: impl Into<String>) -> CallStatus {
    CallStatus { code, message: message.into() }
}

impl Link {
    /// Makes a connection of a socket.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn new(socket: UnixStream) -> io::Result<Arc<Self>> {
        socket.set_write_timeout(Some(WRITE_MAX))?;
        Ok(Arc::new(Self {
            socket,
            writing: Mutex::new(()),
            calls: Mutex::new(Calls { next: 1, waiting: BTreeMap::new() }),
            open_calls: AtomicUsize::new(0),
        }))
    }

    /// Calls the runtime.
    ///
    /// # Errors
    /// The call cannot be sent, fails, or has no answer in time.
    pub fn call<A: Message + Default>(
        &self,
        method: &str,
        argument: &impl Message,
        patience: Duration,
    ) -> Result<A, CallError> {
        let (sender, receiver) = sync_channel(1);
        let stream = {
            let mut calls = self.calls();
            let stream = calls.next;
            calls.next = stream.wrapping_add(2);
            calls.waiting.insert(stream, sender);
            stream
        };
        let request = CallRequest {
            service: RUNTIME_SERVICE.to_owned(),
            method: method.to_owned(),
            payload: argument.encode_to_vec(),
            timeout_nano: i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX),
        };
        let frame = Frame { stream, kind: REQUEST, flags: REMOTE_CLOSED, payload: request.encode_to_vec() };
        let response = self.send(RUNTIME, &frame).map_err(CallError::from).and_then(|()| {
            receiver.recv_timeout(patience).map_err(|error| match error {
                RecvTimeoutError::Timeout => CallError::Late(patience),
                RecvTimeoutError::Disconnected => CallError::Closed,
            })
        });
        self.calls().waiting.remove(&stream);
        Ok(A::decode(&*response?.result().map_err(CallError::Refused)?)?)
    }

    /// Reads until the connection ends, and gives each call of the runtime to `serve`, which must
    /// not wait.
    ///
    /// # Errors
    /// The socket fails, or the runtime sends what cannot be read.
    pub fn run(self: &Arc<Self>, serve: &dyn Fn(Call)) -> Result<(), LinkError> {
        let done = self.read(serve);
        self.close();
        // Waiting calls end: their senders are gone.
        self.calls().waiting.clear();
        done
    }

    fn read(self: &Arc<Self>, serve: &dyn Fn(Call)) -> Result<(), LinkError> {
        let (mut splitter, mut plugin, mut runtime) =
            (Splitter::default(), Assembler::default(), Assembler::default());
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = match (&self.socket).read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // It ended without reading all of our words.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            for (connection, payload) in splitter.take(&bytes[..count])? {
                match connection {
                    PLUGIN => plugin.take(&payload)?.into_iter().for_each(|frame| self.called(frame, serve)),
                    RUNTIME => runtime.take(&payload)?.into_iter().for_each(|frame| self.answered(&frame)),
                    _ => {} // of later versions
                }
            }
        }
    }

    /// Takes a frame on the connection on which the runtime calls.
    fn called(self: &Arc<Self>, frame: Frame, serve: &dyn Fn(Call)) {
        if frame.kind != REQUEST {
            return;
        }
        let open = self.open_calls.fetch_add(1, Ordering::AcqRel);
        let mut call = Call {
            link: Arc::clone(self),
            stream: frame.stream,
            answered: false,
            service: String::new(),
            method: String::new(),
            payload: Vec::new(),
            patience: None,
        };
        if open >= CALLS_MAX {
            return call.answer(Err(status(code::RESOURCE_EXHAUSTED, "too many calls at a time")));
        }
        match CallRequest::decode(&*frame.payload) {
            Ok(request) => {
                let nanoseconds = u64::try_from(request.timeout_nano).ok().filter(|&time| time > 0);
                call.patience = nanoseconds.map(Duration::from_nanos);
                (call.service, call.method, call.payload) =
                    (request.service, request.method, request.payload);
                serve(call);
            }
            Err(error) => call.answer(Err(status(code::INVALID_ARGUMENT, format!("no request: {error}")))),
        }
    }

    /// Takes a frame on the connection on which the runtime answers.
    fn answered(&self, frame: &Frame) {
        if frame.kind != RESPONSE {
            return;
        }
        let Some(waiting) = self.calls().waiting.remove(&frame.stream) else { return };
        if let Ok(response) = Response::decode(&*frame.payload) {
            // The caller may have given up.
            let _ = waiting.try_send(response);
        }
    }

    fn send(&self, connection: u32, frame: &Frame) -> Result<(), LinkError> {
        let bytes = frames(connection, &frame.bytes()?);
        let _order = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = (&self.socket).write_all(&bytes);
        if sent.is_err() {
            // A part may have been sent: what follows would not be understood.
            self.close();
        }
        Ok(sent?)
    }

    /// Ends the connection.
    pub fn close(&self) {
        // It may have ended already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Empty, PLUGIN_SERVICE};
    use std::thread;

    /// A link, the runtime's end of its socket, and the thread that serves it by an echo.
    fn pair() -> (Arc<Link>, UnixStream, thread::JoinHandle<Result<(), LinkError>>) {
        let (own, runtime) = UnixStream::pair().unwrap();
        let link = Link::new(own).unwrap();
        let served = Arc::clone(&link);
        let serve = |call: Call| {
            if call.method == "Echo" {
                let payload = call.payload.clone();
                call.answer(Ok(payload));
            }
        };
        let thread = thread::spawn(move || served.run(&serve));
        (link, runtime, thread)
    }

    fn request(stream: u32, method: &str, payload: &[u8]) -> Vec<u8> {
        let request = CallRequest {
            service: PLUGIN_SERVICE.into(),
            method: method.into(),
            payload: payload.to_vec(),
            timeout_nano: 0,
        };
        let frame = Frame { stream, kind: REQUEST, flags: REMOTE_CLOSED, payload: request.encode_to_vec() };
        frames(PLUGIN, &frame.bytes().unwrap())
    }

    /// Reads one frame from the runtime's end.
    fn frame(runtime: &mut UnixStream, connection: u32) -> Frame {
        let (mut splitter, mut assembler) = (Splitter::default(), Assembler::default());
        loop {
            let mut byte = [0];
            runtime.read_exact(&mut byte).unwrap();
            for (of, payload) in splitter.take(&byte).unwrap() {
                assert_eq!(of, connection);
                if let Some(frame) = assembler.take(&payload).unwrap().pop() {
                    return frame;
                }
            }
        }
    }

    #[test]
    fn calls_are_answered_and_a_dropped_one_is_an_error() {
        let (_link, mut runtime, thread) = pair();
        let long = vec![7; 20_000];
        runtime.write_all(&request(1, "Echo", &long)).unwrap();
        let answer = frame(&mut runtime, PLUGIN);
        assert_eq!((answer.stream, answer.kind), (1, RESPONSE));
        assert_eq!(Response::decode(&*answer.payload).unwrap().result(), Ok(long));
        runtime.write_all(&request(3, "Other", &[])).unwrap();
        let answer = frame(&mut runtime, PLUGIN);
        let error = Response::decode(&*answer.payload).unwrap().result().unwrap_err();
        assert_eq!((answer.stream, error.code), (3, code::DEADLINE_EXCEEDED));
        drop(runtime);
        assert!(thread.join().unwrap().is_ok());
    }

    #[test]
    fn the_runtimes_answers_find_their_calls() {
        let (link, mut runtime, _thread) = pair();
        let caller = thread::spawn(move || {
            let first = link.call::<Empty>("One", &Empty {}, Duration::from_secs(60));
            let second = link.call::<Empty>("Two", &Empty {}, Duration::from_secs(60));
            (first.is_ok(), second.map_err(|error| error.to_string()))
        });
        let call = frame(&mut runtime, RUNTIME);
        assert_eq!((call.stream, call.kind), (1, REQUEST));
        let answer = |stream, response: Response| {
            let payload = response.encode_to_vec();
            frames(RUNTIME, &Frame { stream, kind: RESPONSE, flags: 0, payload }.bytes().unwrap())
        };
        // An answer to a call that was never made is ignored.
        runtime.write_all(&answer(99, Response::default())).unwrap();
        runtime.write_all(&answer(1, Response::default())).unwrap();
        let call = frame(&mut runtime, RUNTIME);
        let refused = Response { status: Some(status(code::FAILED_PRECONDITION, "no")), payload: vec![] };
        runtime.write_all(&answer(call.stream, refused)).unwrap();
        assert_eq!(caller.join().unwrap(), (true, Err("the runtime refuses: no".to_owned())));
    }

    #[test]
    fn a_runtime_that_hangs_or_ends_costs_a_call_only() {
        let (link, runtime, thread) = pair();
        let late = link.call::<Empty>("One", &Empty {}, Duration::from_millis(1));
        assert!(matches!(late, Err(CallError::Late(_))));
        let again = Arc::clone(&link);
        let caller = thread::spawn(move || again.call::<Empty>("Two", &Empty {}, Duration::from_secs(600)));
        while link.calls().waiting.is_empty() {
            thread::yield_now();
        }
        drop(runtime);
        assert!(matches!(caller.join().unwrap(), Err(CallError::Closed | CallError::Unsent(_))));
        assert!(thread.join().unwrap().is_ok());
    }

    #[test]
    fn a_hostile_frame_ends_the_connection() {
        let (_link, mut runtime, thread) = pair();
        runtime.write_all(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]).unwrap();
        assert!(matches!(thread.join().unwrap(), Err(LinkError::Frame(_))));
        let (_link, mut runtime, thread) = pair();
        let hostile = [&[0xff; 4][..], &[0, 0, 0, 1, 1, 0]].concat();
        runtime.write_all(&frames(PLUGIN, &hostile)).unwrap();
        assert!(matches!(thread.join().unwrap(), Err(LinkError::Message(_))));
    }
}
