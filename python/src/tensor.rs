//! Batches as DLPack capsules: torch takes the memory over without a copy.
//!
//! Each capsule holds a lease of the slab. torch calls the deleter when the last
//! tensor on it dies, in whatever thread; the deleter gives the lease back and never
//! touches Python. In a forked child it does nothing: the slab is the parent's.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use forebay_engine::{SlabLease, prepare};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::fork::forks;

const NAME: &std::ffi::CStr = c"dltensor";

/// Element types of what we hand over.
#[derive(Clone, Copy)]
pub(crate) enum Element {
    U8,
    I64,
    F16,
    Bf16,
    F32,
}

impl Element {
    /// DLPack's code and bits.
    fn code(self) -> (u8, u8) {
        match self {
            Element::I64 => (0, 64),
            Element::U8 => (1, 8),
            Element::F16 => (2, 16),
            Element::F32 => (2, 32),
            Element::Bf16 => (4, 16),
        }
    }
}

impl From<prepare::Element> for Element {
    fn from(element: prepare::Element) -> Self {
        match element {
            prepare::Element::U8 => Element::U8,
            prepare::Element::F16 => Element::F16,
            prepare::Element::Bf16 => Element::Bf16,
            prepare::Element::F32 => Element::F32,
        }
    }
}

/// The form of a tensor on a slab: up to four dimensions, each with its stride in elements.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    dims: [(i64, i64); 4],
    ndim: usize,
    element: Element,
}

impl Form {
    /// A row of elements.
    pub(crate) fn row(count: usize, element: Element) -> Self {
        Self {
            dims: [(count as i64, 1), (0, 0), (0, 0), (0, 0)],
            ndim: 1,
            element,
        }
    }

    /// A batch of images, in torch's order of dimensions whatever the order in memory.
    pub(crate) fn images(count: usize, shape: prepare::Shape) -> Self {
        let [n, c, h, w] =
            [count, shape.channels, shape.height, shape.width].map(|size| size as i64);
        let [by_c, by_h, by_w] = match shape.order {
            prepare::Order::Chw => [h * w, w, 1],
            prepare::Order::Hwc => [1, w * c, c],
        };
        Self {
            dims: [(n, c * h * w), (c, by_c), (h, by_h), (w, by_w)],
            ndim: 4,
            element: shape.element.into(),
        }
    }

    fn bytes(&self) -> usize {
        let count: i64 = self.dims[..self.ndim]
            .iter()
            .map(|(size, _)| size)
            .product();
        count as usize * usize::from(self.element.code().1) / 8
    }
}

#[repr(C)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// DLPack's `DLManagedTensor`, with what it manages behind it.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    shape: [i64; 4],
    strides: [i64; 4],
    lease: Option<SlabLease>,
    forks: u64,
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: made by `Box::into_raw` in `capsule`; DLPack calls the deleter once.
    let mut managed = unsafe { Box::from_raw(managed) };
    if managed.forks != forks() {
        std::mem::forget(managed.lease.take());
    }
}

unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule that `capsule` made. A consumer
    // renames it, so under this name the tensor is still ours to delete.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

/// A tensor on the slab, from byte `offset`.
pub(crate) fn capsule(
    py: Python<'_>,
    lease: &SlabLease,
    offset: usize,
    form: Form,
) -> PyResult<Py<PyAny>> {
    let (code, bits) = form.element.code();
    assert!(
        offset + form.bytes() <= lease.len(),
        "a tensor inside its slab"
    );
    let mut managed = Box::new(Managed {
        tensor: DlTensor {
            data: lease.as_ptr().wrapping_add(offset).cast(),
            device: DlDevice { kind: 1, id: 0 },
            ndim: form.ndim as i32,
            dtype: DlDataType {
                code,
                bits,
                lanes: 1,
            },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        },
        context: ptr::null_mut(),
        deleter: Some(delete),
        shape: form.dims.map(|(size, _)| size),
        strides: form.dims.map(|(_, stride)| stride),
        lease: Some(lease.clone()),
        forks: forks(),
    });
    managed.tensor.shape = managed.shape.as_mut_ptr();
    managed.tensor.strides = managed.strides.as_mut_ptr();
    let raw = Box::into_raw(managed);
    // SAFETY: a capsule that owns `raw` until a consumer renames it; on failure the
    // box is taken back.
    unsafe {
        let capsule = ffi::PyCapsule_New(raw.cast(), NAME.as_ptr(), Some(destroy));
        if capsule.is_null() {
            drop(Box::from_raw(raw));
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, capsule).unbind())
    }
}
