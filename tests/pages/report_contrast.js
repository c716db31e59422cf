() => {
  const numbers = colour => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([red, green, blue]) => [red, green, blue].map(value => value / 255)
    .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = element => {
    const colour = numbers(getComputedStyle(element).backgroundColor);
    return colour[3] === 0 ? ground(element.parentElement) : colour;
  };
  const contrast = (element, colour) => {
    const [low, high] = [luminance(numbers(colour)), luminance(ground(element))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const told = "h1, h2, h3, p, li, th, td, dt, dd, small, figcaption, summary, .mark, .cell";
  const texts = [...document.querySelectorAll(told)]
    .map(element => [element.textContent.slice(0, 30), contrast(element, getComputedStyle(element).color)]);
  const labels = [...document.querySelectorAll("svg text")]
    .map(label => [label.textContent, contrast(label.closest("figure, article"), getComputedStyle(label).fill)]);
  return [...texts, ...labels];
}
