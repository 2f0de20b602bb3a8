"""The CUDA driver, as the loader calls it. Every refusal of it is a `DriverError` with a reason."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from cuda.bindings import driver

from pipelink.launch import LaunchError, LoadError, RuntimeFault


class DriverError(RuntimeFault):
    """The CUDA driver refused a call."""


def call(what: str, result: tuple[Any, ...]) -> Any:
    if int(result[0]):
        raise DriverError(f"{what}: {driver.CUresult(int(result[0])).name}")
    return result[1] if len(result) == 2 else result[1:]


@lru_cache(maxsize=1)
def start() -> int:
    """The driver's CUDA version, once it is initialised."""
    try:
        call("the CUDA driver does not start", driver.cuInit(0))
    except RuntimeError as error:  # the bindings found no driver library
        raise LoadError("there is no CUDA driver on this machine") from error
    return int(call("the CUDA driver has no version", driver.cuDriverGetVersion()))


def owner(pointer: int) -> int | None:
    """The device whose memory it is."""
    start()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = driver.cuPointerGetAttribute(attribute, pointer)
    return None if int(status) else int(ordinal)


@lru_cache(maxsize=64)
def primary(ordinal: int) -> Any:
    """The context that torch, CuPy and the CUDA runtime share; it is never given back."""
    handle = call(f"there is no device {ordinal}", driver.cuDeviceGet(ordinal))
    retained = driver.cuDevicePrimaryCtxRetain(handle)
    return call(f"device {ordinal} has no context", retained)


@contextmanager
def current(context: Any) -> Iterator[None]:
    call("the context cannot be used", driver.cuCtxPushCurrent(context))
    try:
        yield
    finally:
        driver.cuCtxPopCurrent()


@contextmanager
def outside_capture() -> Iterator[None]:
    """Lets this thread load code while it captures a stream into a graph."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("no capture mode", driver.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def follow(ordinal: int, stream: int, producer: int) -> None:
    """Orders what comes on `stream` after what is on `producer`; both or none may be captured."""
    with current(primary(ordinal)):
        ours, theirs = captured(stream), captured(producer)
        if ours != theirs:
            # The driver would refuse the wait and break the capture off.
            raise LaunchError(
                f"must come by a stream that is captured if the launch's is: {producer:#x} "
                f"{_IS[theirs]} captured, {stream:#x} {_IS[ours]}"
            )
        flags = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        event = call("no event to order two streams by", driver.cuEventCreate(flags))
        try:
            call(f"stream {producer:#x}", driver.cuEventRecord(event, producer))
            call(f"stream {stream:#x}", driver.cuStreamWaitEvent(stream, event, 0))
        finally:
            driver.cuEventDestroy(event)


def wait(what: str, stream: int) -> None:
    """Until the work on a stream is done; `what` names it where it fails."""
    call(what, driver.cuStreamSynchronize(stream))


def integers(what: str, code: str, count: int, pointer: int, stream: int) -> "array[int]":
    """A copy of an array of integers on the device, of the type that the array module calls `code`."""
    # A synchronous copy would go by the legacy stream, which other streams wait for.
    values = array(code, bytes(array(code).itemsize * count))
    host, size = values.buffer_info()[0], values.itemsize * count
    call(what, driver.cuMemcpyDtoHAsync(host, pointer, size, stream))
    wait(what, stream)
    return values


_IS = {True: "is", False: "is not"}


def captured(stream: int, beside_another: bool = False) -> bool:
    """`beside_another`: what is said of the legacy stream, which is never captured and can't be asked,
    or waited for, while another one is."""
    found = driver.cuStreamIsCapturing(stream)
    if int(found[0]) == int(driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT):
        return beside_another
    return bool(int(call(f"stream {stream:#x}", found)))


def parameter_sizes(function: Any) -> list[int]:
    """The bytes of each parameter that a function takes, in order."""
    sizes: list[int] = []
    while True:
        found = driver.cuFuncGetParamInfo(function, len(sizes))
        if int(found[0]) == int(driver.CUresult.CUDA_ERROR_INVALID_VALUE):  # there are no more
            return sizes
        sizes.append(int(call("no parameters", found)[1]))


def limits(ordinal: int) -> tuple[int, ...]:
    """Its capability, major and minor, its multiprocessors, and the shared bytes that a block can have."""
    handle = call(f"there is no device {ordinal}", driver.cuDeviceGet(ordinal))
    kind = driver.CUdevice_attribute
    attributes = (
        kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    )
    values = (driver.cuDeviceGetAttribute(a, handle) for a in attributes)
    return tuple(int(call(f"device {ordinal} has no limits", value)) for value in values)
