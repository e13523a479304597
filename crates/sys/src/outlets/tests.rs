use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use osb_core::testkit::required;

use super::*;

/// Does something in a network namespace of its own, where this can be made.
fn apart(work: impl FnOnce() + Send) {
    if !required("root", rustix::process::geteuid().is_root()) {
        return;
    }
    let work = || {
        // SAFETY: a network namespace has nothing to do with memory; only this thread goes there.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        work();
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap());
}

const THEIRS: [&str; 4] = ["8.8.8.8:443", "[2001:db8::5]:80", "198.18.3.4:22", "[fd53:0:0:1::7]:9"];

/// Waits for what arrives: all that comes over the loopback is there when it was sent.
fn taken(outlets: &Outlets) -> (TcpStream, SocketAddr) {
    let (stream, _) = outlets.streams.accept().unwrap();
    stream.set_nonblocking(false).unwrap();
    let to = stream.local_addr().unwrap();
    (stream, SocketAddr::new(to.ip().to_canonical(), to.port()))
}

fn unspecified(like: SocketAddr) -> SocketAddr {
    let ip: IpAddr =
        if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

fn own(like: SocketAddr) -> IpAddr {
    if like.is_ipv4() { OWN.0.into() } else { OWN.1.into() }
}

#[test]
fn this_kernel_can_do_it() {
    if required("root", rustix::process::geteuid().is_root()) {
        try_apart().unwrap();
    }
}

#[test]
fn a_stream_arrives_with_its_destination() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        for to in THEIRS.map(|to| to.parse::<SocketAddr>().unwrap()) {
            let mut ours = TcpStream::connect(to).unwrap();
            let (mut theirs, wanted) = taken(&outlets);
            assert_eq!(wanted, to);
            assert_eq!(ours.local_addr().unwrap().ip(), own(to));
            ours.write_all(b"question").unwrap();
            let mut said = [0; 8];
            theirs.read_exact(&mut said).unwrap();
            theirs.write_all(b"answer").unwrap();
            drop(theirs);
            let mut answer = String::new();
            ours.read_to_string(&mut answer).unwrap();
            assert_eq!((&said, answer.as_str()), (b"question", "answer"));
        }
    });
}

#[test]
fn a_datagram_arrives_with_its_destination_and_is_answered_from_there() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let mut buffer = vec![0; 65_536];
        for to in THEIRS.map(|to| to.parse::<SocketAddr>().unwrap()) {
            // The answer of an odd length, and of the largest that there can be.
            for size in [0, 7, 65_467] {
                let ours = UdpSocket::bind(unspecified(to)).unwrap();
                ours.connect(to).unwrap();
                ours.send(b"question").unwrap();
                let received = receive(&outlets.datagrams, &mut buffer).unwrap();
                let from = ours.local_addr().unwrap();
                assert_eq!(received, Received { from, to, length: 8 });
                assert_eq!((from.ip(), &buffer[..8]), (own(to), b"question".as_slice()));
                let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
                answer(&outlets.answers, to, from, &bytes).unwrap();
                ours.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let mut answer = vec![0; 65_536];
                let length = ours.recv(&mut answer).unwrap();
                assert_eq!(answer[..length], bytes, "{size} bytes");
            }
        }
        let none = receive(&outlets.datagrams, &mut buffer).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_answer_that_fits_in_no_packet_is_refused() {
    let socket = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let answers = (socket(), socket());
    for (from, to, size) in [
        ("1.2.3.4:5", "[::1]:6", 0),
        ("[::2]:5", "1.2.3.4:6", 0),
        ("1.2.3.4:5", "1.2.3.5:6", 65_508),
        ("[::2]:5", "[::1]:6", 65_528),
    ] {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let refused = answer(&answers, from, to, &vec![0; size]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_datagram_longer_than_the_buffer_is_lost_and_the_next_is_not() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let ours = UdpSocket::bind("0.0.0.0:0").unwrap();
        let to: SocketAddr = "9.9.9.9:53".parse().unwrap();
        ours.send_to(&[1; 200], to).unwrap();
        ours.send_to(&[2; 100], to).unwrap();
        let mut buffer = [0; 100];
        let lost = receive(&outlets.datagrams, &mut buffer).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::InvalidData);
        let received = receive(&outlets.datagrams, &mut buffer).unwrap();
        assert_eq!((received.to, received.length, buffer), (to, 100, [2; 100]));
    });
}

#[test]
fn what_is_for_the_namespace_itself_does_not_arrive() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        for own in ["127.0.0.1", "127.9.9.9", "198.18.0.1", "::1", "fd53::1", "0.0.0.0", "::"] {
            let own: IpAddr = own.parse().unwrap();
            let at = SocketAddr::new(own, 0);
            let listener = std::net::TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(TcpStream::connect((own, port)).unwrap_or_else(|error| panic!("{own}: {error}")));
            listener.accept().unwrap();
            let (here, there) = (UdpSocket::bind(at).unwrap(), UdpSocket::bind(at).unwrap());
            here.send_to(b"x", (own, there.local_addr().unwrap().port())).unwrap();
            there.recv(&mut [0]).unwrap();
            for port in [PORT, 9] {
                let refused = TcpStream::connect((own, port)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{own} {port}");
            }
            here.send_to(b"x", (own, PORT)).unwrap();
        }
        assert_eq!(outlets.streams.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let none = receive(&outlets.datagrams, &mut [0]).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn with_the_outlets_closed_connections_are_refused_until_they_are_opened_again() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        assert_eq!(Outlets::open().unwrap_err().kind(), ErrorKind::AddrInUse);
        let outlets = Outlets::from_fds(outlets.into_fds());
        drop(outlets);
        for to in THEIRS {
            let refused = TcpStream::connect(to).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{to}");
            let to = to.parse().unwrap();
            let socket = UdpSocket::bind(unspecified(to)).unwrap();
            socket.send_to(b"x", to).unwrap();
        }
        let outlets = Outlets::open().unwrap();
        let mut buffer = [0; 64];
        let none = receive(&outlets.datagrams, &mut buffer).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        let _stream = TcpStream::connect(THEIRS[0]).unwrap();
        assert_eq!(taken(&outlets).1, THEIRS[0].parse().unwrap());
    });
}

/// Otherwise an answer to it would be one more datagram that leaves.
#[test]
fn nothing_leaves_from_an_address_that_somebody_has_only_bound() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let to: SocketAddr = "8.8.8.8:53".parse().unwrap();
        let socket = UdpSocket::bind("5.5.5.5:0").unwrap();
        socket.send_to(b"x", to).unwrap();
        answer(&outlets.answers, to, socket.local_addr().unwrap(), b"x").unwrap();
        let none = receive(&outlets.datagrams, &mut [0; 64]).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
    });
}

/// A socket whose sender sets an option.
fn with_option(to: SocketAddr, level: i32, option: i32, value: &[u8]) -> UdpSocket {
    let socket = UdpSocket::bind(unspecified(to)).unwrap();
    let length = libc::socklen_t::try_from(value.len()).unwrap();
    let fd = socket.as_raw_fd();
    // SAFETY: the value outlives the call, and `length` is its size.
    let result = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), length) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    socket
}

#[test]
fn fragments_and_options_do_not_hide_a_destination() {
    /// Asks every router to write down its address.
    const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];
    /// Asks for the way over another address first.
    const BY_ANOTHER: [u8; 8] = [131, 7, 4, 9, 9, 9, 9, 0];
    const IPV6_MTU: i32 = 24;
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let mut buffer = vec![0; 65_536];
        let (fourth, sixth) =
            ("192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap());
        let small = with_option(sixth, libc::SOL_IPV6, IPV6_MTU, &1280_i32.to_ne_bytes());
        small.send_to(&vec![7; 60_000], sixth).unwrap();
        let whole = receive(&outlets.datagrams, &mut buffer).unwrap();
        assert_eq!((whole.to, whole.length), (sixth, 60_000));
        let options = with_option(fourth, libc::SOL_IP, libc::IP_OPTIONS, &RECORD_ROUTE);
        options.send_to(b"x", fourth).unwrap();
        assert_eq!(receive(&outlets.datagrams, &mut buffer).unwrap().to, fourth);
        // It is for the other address, as far as anybody here can tell.
        let detour = with_option(fourth, libc::SOL_IP, libc::IP_OPTIONS, &BY_ANOTHER);
        if detour.send_to(b"x", fourth).is_ok()
            && let Ok(received) = receive(&outlets.datagrams, &mut buffer)
        {
            assert_eq!(received.to, "9.9.9.9:53".parse().unwrap());
        }
    });
}

#[test]
fn a_stream_over_several_paths_is_one_like_others() {
    const MULTIPATH: u32 = 262;
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let protocol = Protocol::from_raw(MULTIPATH.try_into().unwrap());
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(protocol));
        // Not every kernel has them.
        let Ok(socket) = socket else { return };
        let to: SocketAddr = THEIRS[0].parse().unwrap();
        rustix::net::connect(&socket, &to).unwrap();
        let (mut theirs, wanted) = taken(&outlets);
        assert_eq!(wanted, to);
        rustix::io::write(&socket, b"x").unwrap();
        theirs.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn what_is_for_all_or_for_neighbours_arrives_as_such() {
    apart(|| {
        let outlets = Outlets::open().unwrap();
        let mut buffer = [0; 64];
        for to in ["255.255.255.255:53", "224.0.0.1:53", "[ff02::1%1]:53", "[fe80::1%1]:53"] {
            let to: SocketAddr = to.parse().unwrap();
            let socket = UdpSocket::bind(unspecified(to)).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(b"x", to).unwrap();
            let received = receive(&outlets.datagrams, &mut buffer).unwrap();
            assert_eq!((received.to.ip(), received.to.port()), (to.ip(), 53));
        }
    });
}
