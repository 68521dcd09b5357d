;; What wasmi runs. `program.wasm` is this, assembled with the crate wat.
(module
  (import "host" "less" (func $less (param i32 i32) (result i32)))
  (import "host" "log" (func $log (param i64)))
  (memory (export "memory") 1)
  (type $unary (func (param i32) (result i32)))
  (table 4 funcref)
  (elem (i32.const 0) $double $negate $bits)
  (global $calls (mut i32) (i32.const 0))

  (func $double (type $unary) local.get 0 i32.const 1 i32.shl)
  (func $negate (type $unary) i32.const 0 local.get 0 i32.sub i32.const 1 i32.div_s)
  (func $bits (type $unary)
    local.get 0 i32.popcnt local.get 0 i32.clz i32.add local.get 0 i32.const 5 i32.rotl i32.xor)

  ;; The function of this index, of a number: traps if there is none.
  (func (export "apply") (param i32 i32) (result i32)
    global.get $calls i32.const 1 i32.add global.set $calls
    (call_indirect (type $unary) (local.get 1) (local.get 0))
    global.get $calls i32.add)

  ;; Sorts words at 0 by insertion; the host compares.
  (func (export "sort") (param $count i32) (local $i i32) (local $j i32) (local $key i32)
    (local.set $i (i32.const 1))
    (block $done
      (loop $outer
        (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
        (local.set $key (i32.load (i32.shl (local.get $i) (i32.const 2))))
        (local.set $j (local.get $i))
        (block $placed
          (loop $inner
            (br_if $placed (i32.eqz (local.get $j)))
            (br_if $placed (i32.eqz (call $less (local.get $key)
              (i32.load (i32.shl (i32.sub (local.get $j) (i32.const 1)) (i32.const 2))))))
            (i32.store (i32.shl (local.get $j) (i32.const 2))
              (i32.load (i32.shl (i32.sub (local.get $j) (i32.const 1)) (i32.const 2))))
            (local.set $j (i32.sub (local.get $j) (i32.const 1)))
            (br $inner)))
        (i32.store (i32.shl (local.get $j) (i32.const 2)) (local.get $key))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $outer))))

  ;; A factorial by recursion; the host is told of each step.
  (func $factorial (export "factorial") (param i64) (result i64)
    (call $log (local.get 0))
    (if (result i64) (i64.le_s (local.get 0) (i64.const 1))
      (then (i64.const 1))
      (else (i64.mul (local.get 0) (call $factorial (i64.sub (local.get 0) (i64.const 1)))))))

  ;; The sum of x^n / n!, and of some roots.
  (func (export "series") (param $x f64) (param $terms i32) (result f64)
    (local $n i32) (local $term f64) (local $sum f64)
    (local.set $term (f64.const 1))
    (loop $more
      (local.set $sum (f64.add (local.get $sum) (local.get $term)))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (local.set $term (f64.div (f64.mul (local.get $term) (local.get $x)) (f64.convert_i32_s (local.get $n))))
      (br_if $more (i32.lt_s (local.get $n) (local.get $terms))))
    (f64.add (local.get $sum)
      (f64.sub (f64.sqrt (local.get $sum)) (f64.nearest (f64.mul (local.get $x) (f64.const 10))))))

  (func (export "forever") (loop $again (br $again)))
)
